"""The page at `/`: sign-in, its own modules and their parts from npm. Everything else it gets from `/turnout/v1`."""

from turnout.web.page.files import PageFiles
from turnout.web.page.page import Page

__all__ = ["Page", "PageFiles"]
