"""The use-cases that every dialect calls."""

from turnout.service.jobs import Caller, Jobs, JobView
from turnout.service.logs import Line, LogPage, Logs

__all__ = ["Caller", "JobView", "Jobs", "Line", "LogPage", "Logs"]
