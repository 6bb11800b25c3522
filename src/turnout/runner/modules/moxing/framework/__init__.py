from . import file

__all__ = ["file"]
