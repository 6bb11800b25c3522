"""Hyper-parameter search: suggests points, runs trials, stops bad ones early and computes parameter importance.

The libraries run in a few worker processes, which end when they are idle.
"""

from turnout.search.admission import MOST_WAITING
from turnout.search.controller import SearchController
from turnout.search.study_client import StudyClient, missing_packages
from turnout.search.trial_runner import TrialRunner
from turnout.search.worker_pool import SearchWorkerPool

__all__ = [
    "MOST_WAITING",
    "SearchController",
    "SearchWorkerPool",
    "StudyClient",
    "TrialRunner",
    "missing_packages",
]
