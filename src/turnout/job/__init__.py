"""The domain: what a job is, what states it has, who talks to whom.

Pure: no I/O, no clock, no database, nothing of ours imported.
"""

from turnout.job.events import Event, EventKind
from turnout.job.ids import IdMaker, from_uuid, to_uuid
from turnout.job.launch import Attempt, Gang, Launch, Peer, ReplicaName
from turnout.job.log import Mark, ReplicaLog
from turnout.job.names import host_name
from turnout.job.query import All, Any, Compare, Label, Not, Page, Query
from turnout.job.record import Asset, Job, Measurement, NewJob, Past, Replica, Sample, Trial, TrialState
from turnout.job.report import (
    Capacity,
    Cause,
    Ended,
    Hung,
    Node,
    Report,
    Sampled,
    Saved,
    Started,
    Synced,
    Trimmed,
)
from turnout.job.resources import Resources
from turnout.job.search import Search
from turnout.job.spec import LogExport, Mount, Policy, Program, Retry, Role, Spec, WhenLeadSucceeds
from turnout.job.state import ENDED, LIVE, Reason, ReplicaState, State
from turnout.job.terminal import Size, Terminal

__all__ = [
    "ENDED",
    "LIVE",
    "All",
    "Any",
    "Asset",
    "Attempt",
    "Capacity",
    "Cause",
    "Compare",
    "Ended",
    "Event",
    "EventKind",
    "Gang",
    "Hung",
    "IdMaker",
    "Job",
    "Label",
    "Launch",
    "LogExport",
    "Mark",
    "Measurement",
    "Mount",
    "NewJob",
    "Node",
    "Not",
    "Page",
    "Past",
    "Peer",
    "Policy",
    "Program",
    "Query",
    "Reason",
    "Replica",
    "ReplicaLog",
    "ReplicaName",
    "ReplicaState",
    "Report",
    "Resources",
    "Retry",
    "Role",
    "Sample",
    "Sampled",
    "Saved",
    "Search",
    "Size",
    "Spec",
    "Started",
    "State",
    "Synced",
    "Terminal",
    "Trial",
    "TrialState",
    "Trimmed",
    "WhenLeadSucceeds",
    "from_uuid",
    "host_name",
    "to_uuid",
]
