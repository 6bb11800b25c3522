"""The use-cases that every dialect calls."""

from turnout.control import Explanation
from turnout.service.jobs import Caller, Jobs, JobView
from turnout.service.logs import Line, LogPage, Logs
from turnout.storage.anywhere import Objects
from turnout.storage.anywhere_shelf import Opened
from turnout.storage.objects import Info

__all__ = ["Caller", "Explanation", "Info", "JobView", "Jobs", "Line", "LogPage", "Logs", "Objects", "Opened"]
