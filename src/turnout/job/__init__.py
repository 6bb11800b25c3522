"""The domain: what a job is, what states it has, who talks to whom.

Pure: no I/O, no clock, no database, nothing of ours imported.
"""

from turnout.job.events import Event, EventKind
from turnout.job.ids import IdMaker, from_uuid, to_uuid
from turnout.job.launch import Attempt, Gang, Launch, Peer, ReplicaName
from turnout.job.log import Mark, ReplicaLog
from turnout.job.names import host_name
from turnout.job.query import All, Any, Compare, Not, Page, Query
from turnout.job.record import Job, NewJob, Replica
from turnout.job.report import Capacity, Cause, Ended, Node, Report, Saved, Started, Synced, Trimmed
from turnout.job.resources import Resources
from turnout.job.spec import LogExport, Mount, Policy, Program, Role, Spec, WhenLeadSucceeds
from turnout.job.state import ENDED, LIVE, Reason, ReplicaState, State

__all__ = [
    "ENDED",
    "LIVE",
    "All",
    "Any",
    "Attempt",
    "Capacity",
    "Cause",
    "Compare",
    "Ended",
    "Event",
    "EventKind",
    "Gang",
    "IdMaker",
    "Job",
    "Launch",
    "LogExport",
    "Mark",
    "Mount",
    "NewJob",
    "Node",
    "Not",
    "Page",
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
    "Role",
    "Saved",
    "Spec",
    "Started",
    "State",
    "Synced",
    "Trimmed",
    "WhenLeadSucceeds",
    "from_uuid",
    "host_name",
    "to_uuid",
]
