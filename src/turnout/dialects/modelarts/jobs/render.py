"""Jobs as ModelArts shows them: what is kept of the document, the id, and how it is going."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from turnout.dialects.modelarts import auto_search
from turnout.dialects.modelarts.phases import CREATING
from turnout.dialects.modelarts.phases import phase as phase
from turnout.job import Job, Past, Reason, Replica, ReplicaState, State, Trial, to_uuid
from turnout.service import JobView

_MS = 1_000_000
_SECOND = 1_000_000_000
_decode = msgspec.json.decode

RESTART = "job_reschedule"
FIRST_START = "init_or_rescheduled"
SCENARIOS: dict[Reason, str] = {Reason.NODE_LOST: "node_fault", Reason.HUNG: "job_hanged"}
"""What went wrong, in the words of recover_records; all else is `job_failed`."""

EXPLAINED = {
    137: "killed with signal 9, which is mostly what happens when memory runs out",
    139: "a segmentation fault, which is mostly what happens when packages do not fit each other",
    143: "ended with signal 15",
    247: "mostly what happens when memory runs out",
    127: "a program that it calls is not there",
    126: "a program that it calls may not be executed",
}
"""Exit codes that people ask about."""


class _Spell(NamedTuple):
    """One attempt's time on its nodes."""

    started: int
    ended: int | None


def created(job: Job, document: bytes) -> dict[str, Any]:
    """The answer to a create, before anything has happened."""
    kept = _decode(document)
    status = {
        "phase": CREATING,
        "secondary_phase": CREATING,
        "duration": 0,
        "start_time": 0,
        "node_count_metrics": None,
        "tasks": tasks(kept),
    }
    return _whole(job, kept, status)


def job(view: JobView, past: Sequence[Past], now: int, trials: Sequence[Trial] = ()) -> dict[str, Any]:
    """The whole job object. `past`: the attempts before the current one; `now` in nanoseconds."""
    kept = _decode(view.document)
    return _whole(view.job, kept, _status(view, past, now, tasks(kept, trials)))


def tasks(kept: dict[str, Any], trials: Sequence[Trial] = ()) -> list[str]:
    """The names of all members, by the document alone: `worker-0`, `worker-1`. A search has those of its trials."""
    if auto_search.is_search(kept):
        of_one = range(kept["spec"]["resource"]["node_count"])
        return [f"{trial.id}-worker-{index}" for trial in trials for index in of_one]
    if kept.get("tasks"):
        counts = [(task["role"], task["task_resource"]["node_count"]) for task in kept["tasks"]]
    else:
        counts = [("worker", kept["spec"]["resource"]["node_count"])]
    return [f"{role}-{index}" for role, count in counts for index in range(count)]


def duration(view: JobView, past: Sequence[Past], now: int) -> int:
    """Nanoseconds of running, over all attempts."""
    return sum((spell.ended or now) - spell.started for spell in _spells(view, past))


def _whole(job: Job, kept: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    known = kept["metadata"]
    metadata = {"id": to_uuid(job.id), **known, "create_time": job.created // _MS}
    rest = {key: value for key, value in kept.items() if key not in ("kind", "metadata")}
    return {"kind": kept["kind"], "metadata": metadata, "status": status, **rest}


def _status(view: JobView, past: Sequence[Past], now: int, names: list[str]) -> dict[str, Any]:
    spells = _spells(view, past)
    first, second = phase(view.job)
    status: dict[str, Any] = {
        "phase": first,
        "secondary_phase": second,
        "duration": max(0, duration(view, past, now)) // _MS,
        "start_time": spells[0].started // _MS if spells else 0,
        "node_count_metrics": _node_counts(view.job, spells, len(names)),
        "tasks": names,
    }
    ends = _task_statuses(view)
    if ends:
        status["task_statuses"] = ends
    records = _records(view, past)
    if records:
        status["running_records"] = records
    return status


def _spells(view: JobView, past: Sequence[Past]) -> list[_Spell]:
    spells = [_Spell(one.started, one.ended) for one in past if one.started is not None]
    started = _current_start(view, past)
    if started is not None:
        spells.append(_Spell(started, view.job.ended))
    return spells


def _current_start(view: JobView, past: Sequence[Past]) -> int | None:
    """None while the job waits, also for another go: its replicas are then those of the attempt before."""
    if past and past[-1].attempt == view.job.attempt:
        return None
    starts = [replica.started for replica in view.replicas if replica.started is not None]
    if starts:
        return min(starts)
    return None if past else view.job.started


def _node_counts(job: Job, spells: Sequence[_Spell], nodes: int) -> list[list[int]]:
    """Each change: none while the job waits, all while it runs."""
    points = [[job.created // _MS, 0]]
    for spell in spells:
        points.append([spell.started // _MS, nodes])
        if spell.ended is not None:
            points.append([spell.ended // _MS, 0])
    return points


def _task_statuses(view: JobView) -> list[dict[str, Any]]:
    """Of those that have ended; what failed comes first, the first failure before the others."""
    ended = [replica for replica in view.replicas if replica.ended is not None or replica.message]
    failed_first = sorted(ended, key=lambda one: (one.state is not ReplicaState.FAILED, one.ended or 0))
    return [
        {
            "task": str(replica.name),
            "exit_code": exit_code(replica),
            "message": explain(replica, view.job),
        }
        for replica in failed_first
    ]


def exit_code(replica: Replica) -> int:
    """As a shell counts: 128 and the signal for who was killed. -1: there is none."""
    if replica.exit_code is not None:
        return replica.exit_code
    return -1 if replica.signal is None else 128 + replica.signal


def explain(replica: Replica, job: Job) -> str:
    if replica.state is ReplicaState.SUCCEEDED:
        return ""
    told = replica.message or f"ended with exit code {exit_code(replica)}"
    by_memory = job.reason is Reason.OUT_OF_MEMORY and replica.state is ReplicaState.FAILED
    if by_memory and "memory" not in told:
        return f"{told}; it used more memory than its flavor has"
    why = EXPLAINED.get(exit_code(replica))
    return f"{told}: {why}" if why and replica.state is ReplicaState.FAILED and "memory" not in told else told


def _records(view: JobView, past: Sequence[Past]) -> list[dict[str, Any]]:
    """In seconds, other than all the rest."""
    records: list[dict[str, Any]] = []
    starts = [one.started for one in past[1:]] + [_current_start(view, past)]
    for one, restarted in zip(past, starts, strict=False):
        start = one.started or one.ended
        record = _record(start, one.ended, one.reason, one.message, one.replica)
        records.append(
            record | {"end_recover": RESTART, "recover_records": [_recovery(one, restarted, view.job)]}
        )
    started = _current_start(view, past)
    if started is not None:
        ended, reason = view.job.ended, view.job.reason
        records.append(_record(started, ended, reason if ended else None, view.job.message, _decisive(view)))
    return records


def _record(start: int, end: int | None, reason: Reason | None, message: str, replica: str) -> dict[str, Any]:
    record: dict[str, Any] = {"start_at": start // _SECOND, "start_type": FIRST_START}
    if end is None:
        return record
    # A search that has succeeded says what was best.
    told = message or ("job completed" if reason is Reason.SUCCEEDED else str(reason or ""))
    record |= {"end_at": end // _SECOND, "end_reason": told}
    return record | ({"end_related_task": replica} if replica else {})


def _recovery(past: Past, restarted: int | None, job: Job) -> dict[str, Any]:
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


def _decisive(view: JobView) -> str:
    """Who failed first, if the job failed."""
    if view.job.state is not State.FAILED:
        return ""
    failed = [one for one in view.replicas if one.state is ReplicaState.FAILED]
    return str(min(failed, key=lambda one: one.ended or 0).name) if failed else ""
