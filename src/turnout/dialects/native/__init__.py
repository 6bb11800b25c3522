"""Turnout's own API under `/turnout/v1`, for calls that no cloud has: explain, wait, follow, keys, objects."""

from turnout.dialects.native.routes import Native

__all__ = ["Native"]
