"""Renders jobs as ModelArts shows them: the stored document with the id, the times and the status."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from turnout.dialects.modelarts.jobs.phases import CREATING
from turnout.dialects.modelarts.jobs.phases import phase as phase
from turnout.dialects.modelarts.search import definition
from turnout.job import Job, PastAttempt, Reason, Replica, ReplicaState, State, Trial, to_uuid
from turnout.service import JobView

_MS = 1_000_000
_SECOND = 1_000_000_000
_decode = msgspec.json.decode

RESTART = "job_reschedule"
FIRST_START = "init_or_rescheduled"
SCENARIOS: dict[Reason, str] = {Reason.NODE_LOST: "node_fault", Reason.HUNG: "job_hanged"}
"""`fault_scenario` of recover_records. Other reasons are `job_failed`."""

EXIT_CODE_HINTS = {
    137: "killed by signal 9, most often because memory ran out",
    139: "segmentation fault, most often because of incompatible packages",
    143: "terminated by signal 15",
    247: "most often because memory ran out",
    127: "a program that it calls does not exist",
    126: "a program that it calls is not executable",
}
"""Explanations of exit codes that users ask about."""


class _RunTime(NamedTuple):
    """The time of one attempt on its nodes."""

    started: int
    ended: int | None


def created(job: Job, stored: dict[str, Any]) -> dict[str, Any]:
    """The answer to a create. `stored`: the job's document as it is stored."""
    status = {
        "phase": CREATING,
        "secondary_phase": CREATING,
        "duration": 0,
        "start_time": 0,
        "node_count_metrics": None,
        "tasks": tasks(stored, () if definition.is_search(stored) else None),
    }
    return _document(job, stored, status)


def job(view: JobView, past: Sequence[PastAttempt], now: int, trials: Sequence[Trial] = ()) -> dict[str, Any]:
    """`past`: the attempts before the current one. `now`: nanoseconds since 1970."""
    stored = _decode(view.document)
    # If its configuration file was missing, the job has no search: it runs like any other job, and fails.
    is_search = definition.is_search(stored) and not view.replicas
    names = tasks(stored, trials if is_search else None)
    if not is_search:
        return _document(view.job, stored, _status(view, past, now, names, len(names)))
    status = _status(view, past, now, names, 0)
    status["node_count_metrics"] = _search_node_counts(view.job, trials, _nodes(stored))
    return _document(view.job, stored, status)


def tasks(stored: dict[str, Any], trials: Sequence[Trial] | None) -> list[str]:
    """The names of the tasks: `worker-0`, `worker-1`. `trials` is None for a job that is not a search."""
    if trials is not None:
        return [f"{trial.id}-worker-{index}" for trial in trials for index in range(_nodes(stored))]
    if stored.get("tasks"):
        counts = [(task["role"], task["task_resource"]["node_count"]) for task in stored["tasks"]]
    else:
        counts = [("worker", _nodes(stored))]
    return [f"{role}-{index}" for role, count in counts for index in range(count)]


def duration(view: JobView, past: Sequence[PastAttempt], now: int) -> int:
    """The running time of all attempts in nanoseconds."""
    return sum((run.ended or now) - run.started for run in _run_times(view, past))


def _nodes(stored: dict[str, Any]) -> int:
    return stored["spec"]["resource"]["node_count"]


def _document(job: Job, stored: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    stored_metadata = stored["metadata"]
    metadata = {"id": to_uuid(job.id), **stored_metadata, "create_time": job.created // _MS}
    rest = {key: value for key, value in stored.items() if key not in ("kind", "metadata")}
    if policy := rest["spec"].get("schedule_policy"):
        # Turnout's own API can change it too.
        rest["spec"] = rest["spec"] | {"schedule_policy": policy | {"priority": job.priority}}
    return {"kind": stored["kind"], "metadata": metadata, "status": status, **rest}


def _status(
    view: JobView, past: Sequence[PastAttempt], now: int, names: list[str], nodes: int
) -> dict[str, Any]:
    runs = _run_times(view, past)
    first, second = phase(view.job)
    status: dict[str, Any] = {
        "phase": first,
        "secondary_phase": second,
        "duration": max(0, duration(view, past, now)) // _MS,
        "start_time": runs[0].started // _MS if runs else 0,
        "node_count_metrics": _node_counts(view.job, runs, nodes),
        "tasks": names,
    }
    ends = _task_statuses(view)
    if ends:
        status["task_statuses"] = ends
    records = _records(view, past)
    if records:
        status["running_records"] = records
    return status


def _run_times(view: JobView, past: Sequence[PastAttempt]) -> list[_RunTime]:
    runs = [_RunTime(attempt.started, attempt.ended) for attempt in past if attempt.started is not None]
    started = _current_start(view, past)
    if started is not None:
        runs.append(_RunTime(started, view.job.ended))
    return runs


def _current_start(view: JobView, past: Sequence[PastAttempt]) -> int | None:
    """None while the job is queued. After a retry it still has the replicas of the attempt before."""
    if past and past[-1].attempt == view.job.attempt:
        return None
    starts = [replica.started for replica in view.replicas if replica.started is not None]
    if starts:
        return min(starts)
    return None if past else view.job.started


def _node_counts(job: Job, runs: Sequence[_RunTime], nodes: int) -> list[list[int]]:
    """[milliseconds, nodes] for each change: 0 nodes while the job is queued, all while it runs."""
    points = [[job.created // _MS, 0]]
    for run in runs:
        points.append([run.started // _MS, nodes])
        if run.ended is not None:
            points.append([run.ended // _MS, 0])
    return points


def _search_node_counts(job: Job, trials: Sequence[Trial], nodes: int) -> list[list[int]]:
    """[milliseconds, nodes] for each change: the nodes of the trials that run."""
    changes = [(trial.started, nodes) for trial in trials if trial.started is not None]
    changes += [
        (trial.ended, -nodes) for trial in trials if trial.started is not None and trial.ended is not None
    ]
    points = [[job.created // _MS, 0]]
    for at, change in sorted(changes):
        total = points[-1][1] + change
        if points[-1][0] == at // _MS:
            points[-1][1] = total
        else:
            points.append([at // _MS, total])
    return [points[0], *(point for before, point in pairwise(points) if point[1] != before[1])]


def _task_statuses(view: JobView) -> list[dict[str, Any]]:
    """The tasks that have ended. Failed ones come first, in the order of their ends."""
    ended = [replica for replica in view.replicas if replica.ended is not None or replica.message]
    failed_first = sorted(
        ended, key=lambda replica: (replica.state is not ReplicaState.FAILED, replica.ended or 0)
    )
    return [
        {
            "task": str(replica.name),
            "exit_code": exit_code(replica),
            "message": explain(replica, view.job),
        }
        for replica in failed_first
    ]


def exit_code(replica: Replica) -> int:
    """As in a shell: 128 plus the signal number for a killed task. -1 if there is no exit code."""
    if replica.exit_code is not None:
        return replica.exit_code
    return -1 if replica.signal is None else 128 + replica.signal


def explain(replica: Replica, job: Job) -> str:
    if replica.state is ReplicaState.SUCCEEDED:
        return ""
    message = replica.message or f"ended with exit code {exit_code(replica)}"
    by_memory = job.reason is Reason.OUT_OF_MEMORY and replica.state is ReplicaState.FAILED
    if by_memory and "memory" not in message:
        return f"{message}; it used more memory than its flavor has"
    if Reason.DISK_LIMIT in message:
        # The service killed the task, so the exit code says nothing about the program.
        return message
    why = EXIT_CODE_HINTS.get(exit_code(replica))
    return (
        f"{message}: {why}"
        if why and replica.state is ReplicaState.FAILED and "memory" not in message
        else message
    )


def _records(view: JobView, past: Sequence[PastAttempt]) -> list[dict[str, Any]]:
    """running_records. Their times are in seconds, unlike all others."""
    records: list[dict[str, Any]] = []
    starts = [attempt.started for attempt in past[1:]] + [_current_start(view, past)]
    for attempt, restarted in zip(past, starts, strict=False):
        start = attempt.started or attempt.ended
        record = _record(start, attempt.ended, attempt.reason, attempt.message, attempt.replica)
        records.append(
            record | {"end_recover": RESTART, "recover_records": [_recovery(attempt, restarted, view.job)]}
        )
    started, ended, reason = _current_start(view, past), view.job.ended, view.job.reason
    if started is None and view.job.attempt > (past[-1].attempt if past else 0):
        # The job had nodes, but ended before a task started, because its files could not be fetched or mounted.
        started = ended
    if started is not None:
        records.append(
            _record(started, ended, reason if ended else None, view.job.message, _first_failed(view))
        )
    return records


def _record(start: int, end: int | None, reason: Reason | None, message: str, replica: str) -> dict[str, Any]:
    record: dict[str, Any] = {"start_at": start // _SECOND, "start_type": FIRST_START}
    if end is None:
        return record
    # The message of a search that succeeded names the best trial.
    message = message or ("job completed" if reason is Reason.SUCCEEDED else str(reason or ""))
    record |= {"end_at": end // _SECOND, "end_reason": message}
    return record | ({"end_related_task": replica} if replica else {})


def _recovery(past: PastAttempt, restarted: int | None, job: Job) -> dict[str, Any]:
    result = "success" if restarted is not None else "recovering" if job.live else "failed"
    recovery: dict[str, Any] = {"recover_start_at": past.ended // _SECOND}
    if restarted is not None:
        recovery["recover_end_at"] = restarted // _SECOND
    return recovery | {
        "recover": RESTART,
        "fault_scenario": SCENARIOS.get(past.reason, "job_failed"),
        "reason": past.message or str(past.reason),
        "related_task": past.replica,
        "recover_result": result,
    }


def _first_failed(view: JobView) -> str:
    """The task that failed first, if the job failed."""
    if view.job.state is not State.FAILED:
        return ""
    failed = [replica for replica in view.replicas if replica.state is ReplicaState.FAILED]
    return str(min(failed, key=lambda replica: replica.ended or 0).name) if failed else ""
