"""How attempts and jobs end, and when a job goes back to the queue instead."""

from turnout.control.live_job import SECOND, LiveJob
from turnout.control.live_jobs import LiveJobs
from turnout.control.retry import RetryNumber, next_retry
from turnout.control.turn import Forget, Remove, Save, StopGang
from turnout.control.verdict import Verdict
from turnout.job import (
    Attempt,
    EventKind,
    Job,
    PastAttempt,
    Reason,
    Replica,
    ReplicaState,
    State,
    WhenLeadSucceeds,
)

DECIDED_HERE = frozenset({Reason.PREEMPTED, Reason.HUNG})
"""Reasons for which the controller ends a gang although no replica has failed."""


def decide(live_jobs: LiveJobs, live: LiveJob, verdict: Verdict) -> None:
    """Stores the outcome as soon as it is certain, so that it survives a crash of the service."""
    if live.verdict is None:
        live.verdict = verdict
        live.job.reason, live.job.message = verdict.reason, verdict.message
        live_jobs.placed.ends(live)
    live_jobs.change(live.job)


def stop_gang(
    live_jobs: LiveJobs,
    live: LiveJob,
    verdict: Verdict,
    kind: EventKind = EventKind.STOPPING,
    at: int | None = None,
) -> None:
    """Stops every running replica, for this reason unless the job already has one."""
    decide(live_jobs, live, verdict)
    live_jobs.transitions.enter(live, State.STOPPING)
    live_jobs.event(live.job, kind, verdict.message, at)
    stop_replicas(live_jobs, live, live.running())


def stop_replicas(live_jobs: LiveJobs, live: LiveJob, replicas: list[Replica]) -> None:
    if replicas:
        names = tuple(replica.name for replica in replicas)
        grace = live.spec.policy.grace
        live_jobs.turn.instructions.append(StopGang(live.engine, live.job.current, grace, names))


def replicas_ending_with_lead(live: LiveJob) -> list[Replica]:
    """The running replicas of roles that end when the lead succeeds."""
    ending = {role.name for role in live.spec.roles if role.when_lead_succeeds is WhenLeadSucceeds.END}
    return [replica for replica in live.running() if replica.role in ending]


def set_straggler_deadline(live_jobs: LiveJobs, live: LiveJob, lead_ended: int) -> None:
    """Sets the time at which replicas that outlive a successful lead are ended."""
    live.finish_at = live_jobs.by_steady(lead_ended) + int(live.spec.policy.finish_seconds * SECOND)
    live_jobs.finishing[live.job.id] = live


def end_stragglers(live_jobs: LiveJobs) -> None:
    for live in list(live_jobs.finishing.values()):
        if live.finish_at is not None and live.finish_at <= live_jobs.steady:
            del live_jobs.finishing[live.job.id]
            stop_replicas(live_jobs, live, live.running())


def gang_ended(live_jobs: LiveJobs, live: LiveJob) -> None:
    """All replicas have ended: releases their resources and saves the outputs.

    The attempt ends once the outputs are stored, also if it failed or was stopped.
    """
    live_jobs.pools[live.engine].give(live.placement)
    live.placement = {}
    live_jobs.finishing.pop(live.job.id, None)
    began = any(replica.started for replica in live.replicas.values())
    if began and live.spec.saves:
        live_jobs.turn.instructions.append(Save(live.engine, live.job.current))
    else:
        end_attempt(live_jobs, live)


def end_attempt(live_jobs: LiveJobs, live: LiveJob) -> None:
    """Puts the job back into the queue if it is retried; otherwise ends it."""
    live_jobs.pools[live.engine].give(live.placement)
    live_jobs.placed.remove(live.job.id)
    live_jobs.used.drop(live)
    live_jobs.finishing.pop(live.job.id, None)
    retry = retry_after_attempt(live) if live.job.deleted is None else None
    if retry:
        _back_to_queue(live_jobs, live, retry)
    else:
        end_job(live_jobs, live)


def retry_after_attempt(live: LiveJob) -> RetryNumber | None:
    """The retry that follows this attempt; None: the job ends with it."""
    assert live.verdict is not None, "a gang whose members have all ended has a verdict"
    # If no replica failed but the outputs could not be stored, the lead's exit code counts.
    decisive = _first_to_fail(live) or live.lead
    return next_retry(live.spec.policy, live.past, live.verdict.reason, decisive.shell_code)


def give_up(live_jobs: LiveJobs, live: LiveJob) -> None:
    """Fails a job that has waited in the queue for its maximum time."""
    live.verdict = waited_too_long(live_jobs, live)
    live_jobs.queues[live.engine].remove(live.job.id)
    end_job(live_jobs, live)


def waited_too_long(live_jobs: LiveJobs, live: LiveJob) -> Verdict:
    waited = f"waited {_duration(live_jobs.steady - live.queued_at)} in the queue, its maximum waiting time"
    if live.past:
        last = live.past[-1]
        waited = f"attempt {last.attempt} ended: {last.message}; attempt {last.attempt + 1} {waited}"
    return Verdict(State.FAILED, Reason.WAITED, waited)


def end_job(live_jobs: LiveJobs, live: LiveJob) -> None:
    job, verdict = live.job, live.verdict
    assert verdict is not None
    job.state, job.reason, job.message = verdict.state, verdict.reason, verdict.message
    job.ended = _ended_at(live_jobs, live)
    live_jobs.change(job)
    live_jobs.event(job, EventKind.ENDED, verdict.message or str(verdict.reason), job.ended)
    live_jobs.turn.ended.append(job)
    live_jobs.transitions.end(live)
    del live_jobs.jobs[job.id]
    live_jobs.drop_search(job)
    if live_jobs.handles.get((job.project, job.scope, job.handle)) == job.id:
        del live_jobs.handles[(job.project, job.scope, job.handle)]
    if job.attempt and job.id not in live_jobs.trials:
        live_jobs.turn.instructions.append(Forget(live.engine, job.current, live.spec.debug))
    if job.deleted:
        remove(live_jobs, job)


def remove(live_jobs: LiveJobs, job: Job) -> None:
    """Removes the files of all its attempts."""
    attempts = tuple(Attempt(job.id, number) for number in range(1, job.attempt + 1))
    if attempts:
        live_jobs.turn.instructions.append(Remove(live_jobs.engine_of(job.cluster), attempts))


def _back_to_queue(live_jobs: LiveJobs, live: LiveJob, retry: RetryNumber) -> None:
    job = live.job
    past = _past(live_jobs, live)
    live.past.append(past)
    live_jobs.turn.batch.past.append(past)
    live_jobs.turn.instructions.append(Forget(live.engine, job.current))
    live_jobs.event(
        job,
        EventKind.RETRIED,
        f"attempt {past.attempt} ended: {past.message}; attempt {past.attempt + 1} follows ({retry})",
    )
    live.verdict = live.finish_at = live.saved_at = live.running_since = None
    live.placement, live.replicas, live.pending_why = {}, {}, ""
    live.queued_at = live_jobs.steady
    live_jobs.transitions.enter(live, State.QUEUED)
    job.reason, job.message = None, ""
    live_jobs.change(job)
    live_jobs.enqueue(live)


def _past(live_jobs: LiveJobs, live: LiveJob) -> PastAttempt:
    assert live.verdict is not None
    _, reason, message = live.verdict
    decisive = None if reason in DECIDED_HERE else _first_to_fail(live)
    return PastAttempt(
        job=live.job.id,
        attempt=live.job.attempt,
        started=live.lead.started,
        ended=_ended_at(live_jobs, live),
        reason=reason,
        message=message,
        replica=str(decisive.name) if decisive else "",
        code=decisive.shell_code if decisive else None,
    )


def _first_to_fail(live: LiveJob) -> Replica | None:
    failed = [replica for replica in live.replicas.values() if replica.state is ReplicaState.FAILED]
    return min(failed, key=lambda replica: replica.ended or 0, default=None)


def _ended_at(live_jobs: LiveJobs, live: LiveJob) -> int:
    ends = [replica.ended for replica in live.replicas.values() if replica.ended]
    ended = max([*ends, live.saved_at or 0]) if ends else live_jobs.now
    return max(ended, live.began_after, live.job.started or 0)


def _duration(nanoseconds: int) -> str:
    seconds = nanoseconds // SECOND
    return f"{seconds // 60} minutes" if seconds >= 120 else f"{seconds} seconds"
