"""Turnout's own API under `/turnout/v1`, for what no cloud has: jobs of all APIs, explain, logs, keys, objects."""

from turnout.dialects.native.routes import Native

__all__ = ["Native"]
