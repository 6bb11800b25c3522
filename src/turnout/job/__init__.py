"""The domain: what a job is, its states, and how its replicas find each other.

Pure: no I/O, no clock, no database, no import of another package of Turnout.
"""

from turnout.job.audit import AuditLine, Delivery
from turnout.job.events import Event, EventKind
from turnout.job.ids import IdMaker, from_uuid, to_uuid
from turnout.job.launch import Attempt, Gang, Launch, Peer, ReplicaName
from turnout.job.log import Mark, ReplicaLog
from turnout.job.names import host_name
from turnout.job.query import All, Any, Compare, Label, Not, Page, Query
from turnout.job.record import (
    Asset,
    Job,
    Measurement,
    NewJob,
    PastAttempt,
    Replica,
    Sample,
    Submission,
    Trial,
    TrialState,
)
from turnout.job.report import (
    Capacity,
    Cause,
    Drained,
    Ended,
    Hung,
    Node,
    Noted,
    Pending,
    Report,
    Sampled,
    Saved,
    Started,
    Submitted,
    Synced,
    Trimmed,
)
from turnout.job.resources import Resources
from turnout.job.search import LiveSearch, Search
from turnout.job.spec import LogExport, Mount, Notify, Policy, Program, Retry, Role, Spec, WhenLeadSucceeds
from turnout.job.state import ENDED, LIVE, Reason, ReplicaState, State
from turnout.job.terminal import Size, Terminal

__all__ = [
    "ENDED",
    "LIVE",
    "All",
    "Any",
    "Asset",
    "Attempt",
    "AuditLine",
    "Capacity",
    "Cause",
    "Compare",
    "Delivery",
    "Drained",
    "Ended",
    "Event",
    "EventKind",
    "Gang",
    "Hung",
    "IdMaker",
    "Job",
    "Label",
    "Launch",
    "LiveSearch",
    "LogExport",
    "Mark",
    "Measurement",
    "Mount",
    "NewJob",
    "Node",
    "Not",
    "Noted",
    "Notify",
    "Page",
    "PastAttempt",
    "Peer",
    "Pending",
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
    "Submission",
    "Submitted",
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
