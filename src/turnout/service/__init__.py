"""The use-cases that every dialect calls."""

from turnout.control import Explanation
from turnout.service.jobs import Caller, Jobs, JobView
from turnout.service.logs import Line, LogPage, Logs

__all__ = ["Caller", "Explanation", "JobView", "Jobs", "Line", "LogPage", "Logs"]
