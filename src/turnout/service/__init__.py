"""The operations that every dialect calls."""

from turnout.control import Explanation
from turnout.control.overview import Overview
from turnout.control.sweep import Sweeper, Swept
from turnout.engines.runtimes import RuntimeOperations
from turnout.job import Size, Terminal
from turnout.service.assets import Assets
from turnout.service.audit import Audit, AuditFilter
from turnout.service.clusters import Clusters, NodeView
from turnout.service.connected import while_connected
from turnout.service.jobs import BrowserTargets, Caller, Jobs, JobView
from turnout.service.logs import Line, LogPage, Logs
from turnout.service.merged import Numbered
from turnout.service.searches import Searches
from turnout.service.sources import STORE_SECONDS, Sources, unchecked_note
from turnout.service.trial_jobs import TrialJobs
from turnout.service.webhooks import HookStatus, Webhooks
from turnout.storage.embedded.objects import Info
from turnout.storage.objects import Objects

__all__ = [
    "STORE_SECONDS",
    "Assets",
    "Audit",
    "AuditFilter",
    "BrowserTargets",
    "Caller",
    "Clusters",
    "Explanation",
    "HookStatus",
    "Info",
    "JobView",
    "Jobs",
    "Line",
    "LogPage",
    "Logs",
    "NodeView",
    "Numbered",
    "Objects",
    "Overview",
    "RuntimeOperations",
    "Searches",
    "Size",
    "Sources",
    "Sweeper",
    "Swept",
    "Terminal",
    "TrialJobs",
    "Webhooks",
    "unchecked_note",
    "while_connected",
]
