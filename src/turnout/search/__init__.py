"""Hyper-parameter search: ask for a point, tell how it did, when to stop a trial, what mattered.

The libraries that know how live in a process of their own, and only as long as a search does.
"""

from turnout.search.asker import Asker, missing_packages
from turnout.search.conductor import Conductor
from turnout.search.hands import Hands

__all__ = ["Asker", "Conductor", "Hands", "missing_packages"]
