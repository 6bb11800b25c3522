"""What Slurm says of a job, in words: literal tables of its states and of its reasons for waiting."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from turnout.engines.remote import ClusterJob, EndKind, Gone, Phase
from turnout.engines.slurm.script import COMMENT, OUT_OF_MEMORY

SEPARATOR = "\x1f"
NAMES = "turnout-"
"""What the names of our jobs begin with."""
FORMAT = SEPARATOR.join(("%i", "%j", "%T", "%r", "%P", "%Q", "%N", "%V", "%S", "%k"))
"""For squeue."""


class Row(NamedTuple):
    """A line of squeue, or what another command says in its place."""

    job: str
    name: str
    state: str
    reason: str = ""
    partition: str = ""
    priority: int = 0
    nodes: str = ""
    comment: str = ""
    by: str = ""
    """Who cancelled it, where Slurm says."""
    waited: float | None = None
    """Seconds between its submission and its last start."""

    @property
    def is_ours(self) -> bool:
        return self.name.startswith(NAMES)

    @property
    def out_of_memory(self) -> bool:
        """The batch script found it in what the steps printed: for Slurm, only the step ran out of memory."""
        return self.comment.startswith(f"{COMMENT} {OUT_OF_MEMORY}")


def rows(output: str) -> list[Row]:
    return [row for line in output.split("\n") if (row := _row(line))]


def _row(line: str) -> Row | None:
    """None if the line is not about a job: it is the rest of a comment, or a greeting of the login node."""
    fields = line.split(SEPARATOR)
    if len(fields) != FORMAT.count(SEPARATOR) + 1:
        return None
    job, name, state, reason, partition, priority, nodes, submitted, started, comment = fields
    return Row(
        job, name, state, reason, partition, int(priority) if priority.isdigit() else 0,
        "" if nodes == "(null)" else nodes, "" if comment == "(null)" else comment,
        waited=_seconds_between(submitted, started),
    )  # fmt: skip


def _seconds_between(earlier: str, later: str) -> float | None:
    """None if one is unknown. Both are seconds since 1970, or local times if ssh does not pass `SLURM_TIME_FORMAT`."""
    if earlier.isdigit() and later.isdigit():
        return float(int(later) - int(earlier))
    try:
        return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
    except ValueError:
        return None


def cluster_job(row: Row, before: int | None = None) -> ClusterJob:
    """`before`: how many jobs Slurm would rather start, if that is known."""
    phase, end, words = STATES.get(row.state, UNKNOWN)
    if phase is Phase.PENDING:
        return ClusterJob(row.job, row.name, phase, f"Slurm: {waiting(row, before)}")
    if row.state == "FAILED" and row.reason in NOT_STARTED:
        end, words = EndKind.FAILED, f"it could not be started: {NOT_STARTED[row.reason]}"
    if end is EndKind.EXITED and row.out_of_memory:
        end, words = EndKind.OUT_OF_MEMORY, STATES["OUT_OF_MEMORY"][2]
    if row.by:
        words = f"{words} by {row.by}"
    why = f"Slurm: {words.format(state=row.state)}" if words else ""
    gone = _gone(row.comment) if phase is Phase.RUNNING else {}
    return ClusterJob(row.job, row.name, phase, why, end, row.nodes, row.waited, gone)


# state: (phase, how it ended, in words)
STATES: dict[str, tuple[Phase, EndKind | None, str]] = {
    "PENDING": (Phase.PENDING, None, ""),
    "REQUEUED": (Phase.PENDING, None, ""),
    "REQUEUE_FED": (Phase.PENDING, None, ""),
    "REQUEUE_HOLD": (Phase.PENDING, None, ""),
    "RESV_DEL_HOLD": (Phase.PENDING, None, ""),
    "SPECIAL_EXIT": (Phase.PENDING, None, ""),
    "CONFIGURING": (Phase.RUNNING, None, "its nodes are being prepared"),
    "RUNNING": (Phase.RUNNING, None, ""),
    "RESIZING": (Phase.RUNNING, None, ""),
    "SIGNALING": (Phase.RUNNING, None, ""),
    "STAGE_OUT": (Phase.RUNNING, None, ""),
    "COMPLETING": (Phase.RUNNING, None, "it is being ended"),
    "STOPPED": (Phase.RUNNING, None, "it is stopped by a signal"),
    "SUSPENDED": (Phase.RUNNING, None, "it is suspended"),
    "COMPLETED": (Phase.ENDED, EndKind.EXITED, "it ended by itself"),
    "FAILED": (Phase.ENDED, EndKind.EXITED, "it ended by itself, with an error"),
    "CANCELLED": (Phase.ENDED, EndKind.CANCELLED, "it was cancelled"),
    "REVOKED": (Phase.ENDED, EndKind.CANCELLED, "it was revoked: another cluster of the federation runs it"),
    "TIMEOUT": (Phase.ENDED, EndKind.TIME_LIMIT, "its time limit was reached"),
    "DEADLINE": (Phase.ENDED, EndKind.TIME_LIMIT, "its deadline was reached"),
    "OUT_OF_MEMORY": (Phase.ENDED, EndKind.OUT_OF_MEMORY, "it used more memory than it had asked for"),
    "NODE_FAIL": (Phase.ENDED, EndKind.NODE_LOST, "one of its nodes failed"),
    "BOOT_FAIL": (Phase.ENDED, EndKind.NODE_LOST, "one of its nodes did not boot"),
    "LAUNCH_FAILED": (Phase.ENDED, EndKind.NODE_LOST, "it could not be launched on one of its nodes"),
    "RECONFIG_FAIL": (Phase.ENDED, EndKind.NODE_LOST, "one of its nodes could not be reconfigured"),
    "PREEMPTED": (Phase.ENDED, EndKind.PREEMPTED, "a job of higher priority took its place"),
}
UNKNOWN = (Phase.RUNNING, None, "its state is {state}")

NOT_STARTED = {
    "JobLaunchFailure": "its launch on the node failed",
    "BadConstraints": "no node satisfies its constraints",
    "FrontEndDown": "the front-end node is down",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the QOS is not valid",
    "SystemFailure": "a failure of Slurm itself",
}


def waiting(row: Row, before: int | None) -> str:
    """Why it waits: `waiting for resources, 12 jobs before it in partition gpu`."""
    # Some reasons have details: `ReqNodeNotAvail, UnavailableNodes:n[1-3]`.
    reason, _, detail = row.reason.partition(",")
    words = REASONS.get(reason)
    if words is None:
        words = next((f"{text} ({reason})" for start, text in FAMILIES if reason.startswith(start)), "")
    if not words:
        words = f"waiting ({reason})" if reason else "waiting"
    words = words.format(job=row.job, partition=row.partition)
    if detail.strip():
        words = f"{words} ({detail.strip()})"
    if reason in IN_TURN and before is not None:
        jobs = "1 job" if before == 1 else f"{before} jobs"
        words = f"{words}, {jobs} before it in partition {row.partition}"
    return words


IN_TURN = ("Priority", "Resources", "None")
"""Reasons of jobs that nothing but other jobs keeps from starting."""

REASONS = {
    "None": "waiting for the scheduler",
    "Priority": "waiting for its turn",
    "Resources": "waiting for resources",
    "AccountNotAllowed": "its account may not use partition {partition}",
    "BadConstraints": "no node satisfies its constraints",
    "BeginTime": "waiting for its earliest start, which Slurm sets after a failed start",
    "BurstBufferOperation": "a burst buffer failed",
    "BurstBufferResources": "waiting for a burst buffer",
    "BurstBufferStageIn": "waiting for its burst buffer to be filled",
    "Cleaning": "waiting for the end of its last start",
    "DeadLine": "its deadline cannot be met",
    "Dependency": "waiting for another job that it depends on",
    "DependencyNeverSatisfied": "a job that it depends on can never fulfil its condition",
    "FedJobLock": "waiting for the clusters of its federation",
    "FrontEndDown": "no front-end node is up",
    "InactiveLimit": "it is at the limit of inactivity",
    "InvalidAccount": "its account is not valid; an administrator must change that, or [clusters.X] account",
    "InvalidQOS": "its QOS is not valid; an administrator must change that, or [clusters.X] qos",
    "JobArrayTaskLimit": "waiting for other tasks of its array",
    "JobHeldAdmin": "an administrator holds it (`scontrol release {job}`)",
    "JobHeldUser": "its owner holds it (`scontrol release {job}`)",
    "JobHoldMaxRequeue": "it failed to start too often and is held (`scontrol release {job}`)",
    "JobLaunchFailure": "its launch on the node failed",
    "Licenses": "waiting for a licence",
    "MaxRequeueLimit": "it failed to start too often and is held (`scontrol release {job}`)",
    "NodeDown": "a node that it needs is down",
    "NonZeroExitCode": "it ended with an error",
    "NoReason": "waiting for the scheduler",
    "PartitionConfig": "partition {partition} can never give it what it asks for",
    "PartitionDown": "partition {partition} is down",
    "PartitionInactive": "partition {partition} is inactive",
    "PartitionNodeLimit": "it asks for more nodes than partition {partition} allows, or some of them are down",
    "PartitionTimeLimit": "its time limit is above that of partition {partition}",
    "PowerNotAvail": "waiting for power",
    "PowerReserved": "waiting for power that a reservation has",
    "Prolog": "its prolog is running",
    "QOSJobLimit": "the QOS has as many jobs as it may",
    "QOSNotAllowed": "its QOS may not be used here",
    "QOSResourceLimit": "the QOS has used all that it may",
    "QOSTimeLimit": "the QOS has used all of its time",
    "QOSUsageThreshold": "the QOS' usage threshold is crossed",
    "ReqNodeNotAvail": "a node that it needs is not available: down, drained or reserved",
    "Reservation": "waiting for its reservation",
    "ReservationDeleted": "its reservation was deleted",
    "SchedDefer": "it asked for an immediate start, and the scheduler is busy",
    "SystemFailure": "a failure of Slurm itself",
    "TimeLimit": "its time limit was reached",
    "launch failed requeued held": "its launch on the node failed, and Slurm holds it (`scontrol release {job}`)",
    "launch_failed_requeued_held": "its launch on the node failed, and Slurm holds it (`scontrol release {job}`)",
    "job requeued in held state": "Slurm put it back and holds it (`scontrol release {job}`)",
    "job_requeued_in_held_state": "Slurm put it back and holds it (`scontrol release {job}`)",
    "user env retrieval failed requeued held": "the user's environment could not be read, and Slurm holds it "
    "(`scontrol release {job}`)",
}  # fmt: skip

FAMILIES = (
    ("QOSMax", "its QOS does not allow more for one job or user"),
    ("QOSMin", "its QOS asks for larger jobs"),
    ("QOSGrp", "all jobs of its QOS together have what they may"),
    ("QOS", "a limit of its QOS"),
    ("AssocGrp", "all jobs of its account together have what they may"),
    ("AssocMax", "its account does not allow more for one job or user"),
    ("Assoc", "a limit of its account"),
    ("MaxGRES", "its QOS or account does not allow more for one job or user"),
    ("MaxTRES", "its QOS or account does not allow more for one job or user"),
    ("Max", "a limit of its QOS or account"),
    ("Grp", "all jobs of its QOS or account together have what they may"),
    ("Partition", "a limit of partition {partition}"),
    ("Nodes required for job are DOWN", "nodes that it needs are down, drained or reserved"),
)
"""By what the reasons begin with."""


def jobs_before(row: Row, pending: Iterable[Row]) -> int:
    """How many of the pending jobs in one of its partitions Slurm would rather start."""
    partitions = set(row.partition.split(","))
    rank = (-row.priority, _number(row.job))
    others = (one for one in pending if one.job != row.job and partitions & set(one.partition.split(",")))
    return sum((-one.priority, _number(one.job)) < rank for one in others)


def _number(job: str) -> int:
    """The number of the job: 12 for `12`, `12_3` and `12+1`."""
    found = re.match(r"\d+", job)
    return int(found.group()) if found else 0


def accounted(output: str) -> list[Row]:
    """What `sacct --parsable2 --format=JobIDRaw,JobName,State,NodeList,Comment` prints."""
    found: list[Row] = []
    for line in output.splitlines():
        fields = line.split("|", 4)
        if len(fields) != 5:
            continue
        job, name, state, nodes, comment = fields
        state, _, by = state.partition(" by ")
        found.append(
            Row(job, name, state.rstrip("+"), nodes=nodes, comment=comment, by=f"user {by}" if by else "")
        )
    return found


def comment_on(comment: str, replica: str, role: str) -> str:
    """What the batch script put into the job's comment about this replica and about its step."""
    if not comment.startswith(COMMENT):
        return ""
    entries = [entry.strip() for entry in comment.removeprefix(COMMENT).split(" |")]
    wanted = (f"{replica}: ", f"{role}: ")
    return "\n".join(_shown(entry, wanted) for entry in entries if entry.startswith(wanted))


def _gone(comment: str) -> dict[str, Gone]:
    """The replicas of which srun said, in the comment of the batch script, that they have ended."""
    found: dict[str, Gone] = {}
    for role, tasks in _TASKS.findall(comment) if comment.startswith(COMMENT) else ():
        for part in tasks.split(","):
            first, _, last = part.partition("-")
            for index in range(int(first), int(last or first) + 1):
                found[f"{role}-{index}"] = Gone(EndKind.EXITED)
    return found


# `worker: srun: error: node3: tasks 0-2,5: Killed`
_TASKS = re.compile(r"([\w.-]+): srun: error: [^:|]+: tasks? (\d+(?:[-,]\d+)*): ")


def _shown(entry: str, prefixes: tuple[str, ...]) -> str:
    return next(entry.removeprefix(prefix) for prefix in prefixes if entry.startswith(prefix))


def printed(text: str, index: int) -> str:
    """What a replica's runner, and srun itself, printed to the file of the step."""
    lines: list[str] = []
    for line in text.splitlines():
        label = re.match(r" *0*(\d+): ", line)
        if label is None:
            lines.append(line)
        elif int(label.group(1)) == index:
            lines.append(line[label.end() :])
    return "\n".join(lines)
