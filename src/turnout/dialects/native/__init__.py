"""The little API of our own under `/turnout/v1`, for what no cloud has a call for: explain, wait, follow."""

from turnout.dialects.native.routes import routes

__all__ = ["routes"]
