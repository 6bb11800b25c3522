"""The default engine: runs gangs as processes of this machine. `engine` has the class; start reading there."""

from turnout.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
