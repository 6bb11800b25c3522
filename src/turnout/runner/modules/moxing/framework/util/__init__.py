from . import compat, runtime

__all__ = ["compat", "runtime"]
