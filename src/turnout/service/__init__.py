"""The use-cases that every dialect calls."""

from turnout.control import Explanation
from turnout.job import Size, Terminal
from turnout.service.assets import Assets
from turnout.service.jobs import Caller, Jobs, JobView, Visitable
from turnout.service.logs import Line, LogPage, Logs
from turnout.service.merged import Numbered
from turnout.service.searches import Searches
from turnout.service.trial_jobs import TrialJobs
from turnout.storage.anywhere import Objects
from turnout.storage.objects import Info

__all__ = [
    "Assets",
    "Caller",
    "Explanation",
    "Info",
    "JobView",
    "Jobs",
    "Line",
    "LogPage",
    "Logs",
    "Numbered",
    "Objects",
    "Searches",
    "Size",
    "Terminal",
    "TrialJobs",
    "Visitable",
]
