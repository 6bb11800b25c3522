"""Hyper-parameter search: ask for a point, tell how it did, when to stop a trial, what mattered.

The libraries that know how live in a process of their own, and only as long as a search does.
"""

from turnout.search.asker import Asker, missing_packages

__all__ = ["Asker", "missing_packages"]
