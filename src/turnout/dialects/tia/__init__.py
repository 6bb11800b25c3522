"""Tencent Cloud TI-A, API `tia` of 2018-02-26: one path, `/`, for GET and POST."""

from turnout.dialects.tia.routes import Tia

__all__ = ["Tia"]
