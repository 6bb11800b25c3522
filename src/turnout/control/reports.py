"""Applies engine reports to the live jobs."""

from turnout.control.ends import (
    DECIDED_HERE,
    decide,
    end_attempt,
    gang_ended,
    replicas_ending_with_lead,
    set_straggler_deadline,
    stop_gang,
    stop_replicas,
)
from turnout.control.live_job import LiveJob
from turnout.control.live_jobs import LiveJobs
from turnout.control.restart import restart_in_place, restart_instruction
from turnout.control.retry import next_restart
from turnout.control.trials import trial_started
from turnout.control.turn import Forget, Save, StartGang, StopGang
from turnout.control.verdict import Verdict, explain_end, judge, without_results
from turnout.job import (
    Attempt,
    Capacity,
    Cause,
    Drained,
    Ended,
    EventKind,
    Hung,
    Noted,
    Pending,
    Reason,
    Replica,
    ReplicaState,
    Report,
    Sampled,
    Saved,
    Started,
    State,
    Submission,
    Submitted,
    Synced,
    Trimmed,
)


def apply(live_jobs: LiveJobs, engine: str, report: Report) -> None:
    match report:
        case Started():
            _started(live_jobs, report)
        case Submitted(attempt, engine_id):
            if live := live_jobs.live(attempt):
                kind = live_jobs.engines[engine].kind
                live_jobs.turn.batch.submissions.append(Submission(*attempt, kind, engine_id))
        case Pending(attempt, message):
            if live := live_jobs.live(attempt):
                live.pending_why = message
        case Noted(attempt, at, message, image):
            if live := live_jobs.live(attempt):
                live_jobs.event(live.job, EventKind.IMAGE if image else EventKind.NOTE, message, at)
        case Ended():
            _ended(live_jobs, engine, report)
        case Sampled(attempt, samples):
            if live := live_jobs.live(attempt):
                for sample in samples:
                    live_jobs.used.sample(live, sample)
                live_jobs.turn.batch.samples.extend((attempt, sample) for sample in samples)
        case Saved():
            _saved(live_jobs, report)
        case Hung():
            _hung(live_jobs, report)
        case Trimmed():
            live = live_jobs.live(report.attempt)
            if live:
                live_jobs.event(live.job, EventKind.TRIMMED, report.message, report.at)
        case Capacity(nodes):
            live_jobs.resize(engine, nodes)
        case Drained(on):
            (live_jobs.drained.add if on else live_jobs.drained.discard)(engine)
        case Synced(held):
            _synced(live_jobs, engine, held)


def _started(live_jobs: LiveJobs, report: Started) -> None:
    live = live_jobs.live(report.attempt)
    replica = live and live.replicas.get(report.replica)
    if live is None or replica is None or replica.state is not ReplicaState.WAITING:
        return
    if report.restarts != replica.restarts:
        return
    at = max(report.at, replica.started or live.began_after)
    replica.state, replica.started = ReplicaState.RUNNING, replica.started or at
    replica.pid, replica.address = report.pid, report.address
    replica.node = report.node or replica.node
    live_jobs.change_replica(replica)
    if replica is live.lead and live.job.state is State.PREPARING:
        live_jobs.transitions.enter(live, State.RUNNING)
        live.job.started = live.job.started or at
        live.running_since = live_jobs.by_steady(report.at)
        live_jobs.placed.runs(live)
        live_jobs.change(live.job)
        live_jobs.event(live.job, EventKind.STARTED, f"{report.replica} runs as process {report.pid}", at)
        if trial := live_jobs.trials.get(live.job.id):
            trial_started(live_jobs, trial, at)


def _ended(live_jobs: LiveJobs, engine: str, report: Ended, *, held: bool = True) -> None:
    """`held`: the engine still has the attempt and can restart the replica in place."""
    live = live_jobs.live(report.attempt)
    if live is None:
        if report.attempt.job not in live_jobs.trials:
            _drop(live_jobs, engine, report.attempt)
        return
    replica = live.replicas.get(report.replica)
    if replica is None or replica.ended is not None or report.restarts != replica.restarts:
        return
    replica.ended = max(report.at, replica.started or live.began_after)
    replica.exit_code, replica.signal = report.code, report.signal
    replica.message = explain_end(report)
    good = report.cause is Cause.EXIT and report.code == 0
    requested = report.cause is Cause.STOPPED
    replica.state = (
        ReplicaState.SUCCEEDED if good else ReplicaState.STOPPED if requested else ReplicaState.FAILED
    )
    live_jobs.change_replica(replica)
    live_jobs.change(live.job)
    if good and replica is live.lead:
        _lead_succeeded(live_jobs, live, report.at)
    elif not good and live.verdict is None:
        verdict = judge(report)
        restart = next_restart(live.spec.policy, replica, verdict.reason) if held else None
        if restart:
            restart_in_place(live_jobs, live, replica, restart, report.at)
        else:
            _fail(live_jobs, live, verdict)
    if report.cause is Cause.REFUSED:
        _stop_refused(live_jobs, live, report)
    if not live.running():
        gang_ended(live_jobs, live)


def _stop_refused(live_jobs: LiveJobs, live: LiveJob, report: Ended) -> None:
    """The engine may have started it nevertheless, and refused or failed only when the start was repeated."""
    instructions, replicas = live_jobs.turn.instructions, (report.replica,)
    match instructions[-1:]:
        case [StopGang(_, attempt, 0, others)] if others and attempt == report.attempt:
            replicas = (*others, *replicas)
            del instructions[-1]
        case _:
            pass
    instructions.append(StopGang(live.engine, report.attempt, 0, replicas))


def _lead_succeeded(live_jobs: LiveJobs, live: LiveJob, at: int) -> None:
    if live.verdict and live.verdict.reason in DECIDED_HERE:
        # It finished before the stop reached it.
        live.verdict = None
    if live.verdict is None:
        decide(live_jobs, live, Verdict(State.SUCCEEDED, Reason.SUCCEEDED, ""))
    if live.job.state is not State.STOPPING:
        stop_replicas(live_jobs, live, replicas_ending_with_lead(live))
    set_straggler_deadline(live_jobs, live, at)


def _fail(live_jobs: LiveJobs, live: LiveJob, verdict: Verdict) -> None:
    if live.running() and live.job.state is not State.STOPPING:
        stop_gang(live_jobs, live, verdict)
    else:
        decide(live_jobs, live, verdict)


def _hung(live_jobs: LiveJobs, report: Hung) -> None:
    live = live_jobs.live(report.attempt)
    if live is None or live.verdict is not None:
        return
    why = report.message or "no replica used CPU or did I/O"
    stop_gang(
        live_jobs, live, Verdict(State.FAILED, Reason.HUNG, f"it hung: {why}"), EventKind.HUNG, report.at
    )


def _saved(live_jobs: LiveJobs, report: Saved) -> None:
    live = live_jobs.live(report.attempt)
    if live is None or live.running():
        return
    live.saved_at = report.at
    if report.message:
        live_jobs.event(live.job, EventKind.SAVED, report.message, report.at)
    if report.trouble and live.verdict:
        live.verdict = without_results(live.verdict, report.trouble)
    end_attempt(live_jobs, live)


def _synced(live_jobs: LiveJobs, engine: str, held: frozenset[Attempt]) -> None:
    """Compares what the engine holds with what it should hold. A missing replica is lost, or never started."""
    live_jobs.ready.add(engine)
    placed = live_jobs.placed.on(engine)
    # First, so that no job runs twice: one of them may be an attempt that counted as lost.
    for attempt in held - {live.job.current for live in placed}:
        if attempt.job not in live_jobs.trials or attempt.job in live_jobs.jobs:
            _drop(live_jobs, engine, attempt)
        # Otherwise it has ended, but the search may not have read its metrics yet.
    for live in placed:
        if not live.running():
            if live.job.current in held:
                # What counted as lost may run.
                live_jobs.turn.instructions.append(StopGang(engine, live.job.current, 0))
            # Its last outputs may not be stored yet.
            live_jobs.turn.instructions.append(Save(engine, live.job.current))
        elif live.job.current in held:
            _repeat_instructions(live_jobs, live)
        elif live.job.state is State.PREPARING and not live.begun:
            live_jobs.turn.instructions.append(StartGang(engine, live.launch()))
        else:
            _end_lost(live_jobs, live)


def _drop(live_jobs: LiveJobs, engine: str, attempt: Attempt) -> None:
    """Ends whatever the engine runs of an attempt that is over or unknown."""
    live_jobs.turn.instructions.append(StopGang(engine, attempt, 0))
    live_jobs.turn.instructions.append(Forget(engine, attempt))


def _repeat_instructions(live_jobs: LiveJobs, live: LiveJob) -> None:
    """Repeats instructions that may have been lost with an earlier service or connection."""
    stopping = live.job.state is State.STOPPING
    if stopping:
        # All of them: the engine may run one whose start seemed to fail.
        stop_replicas(live_jobs, live, list(live.replicas.values()))
    for replica in live.running():
        if replica.state is not ReplicaState.WAITING:
            continue
        if live.verdict is None:
            # Also a first start: the engine may have been killed while it started the gang.
            live_jobs.turn.instructions.append(restart_instruction(live, replica))
        elif replica.restarts:
            # If the engine never got the restart, it will not report an end of it.
            _end_restart(live_jobs, live, replica, stopped=stopping)
    if live.running() and live.finish_at is not None and not stopping:
        stop_replicas(live_jobs, live, replicas_ending_with_lead(live))
        live_jobs.finishing[live.job.id] = live


def _end_restart(live_jobs: LiveJobs, live: LiveJob, replica: Replica, *, stopped: bool) -> None:
    if not stopped:
        stop_replicas(live_jobs, live, [replica])
    end = Ended(live.job.current, replica.name, live_jobs.now, Cause.STOPPED, restarts=replica.restarts)
    _ended(live_jobs, live.engine, end)


def _end_lost(live_jobs: LiveJobs, live: LiveJob) -> None:
    never_began = live.verdict is not None and all(r.started is None for r in live.running())
    cause = Cause.STOPPED if never_began else Cause.LOST
    # A start may still be under way, and what is lost may come back.
    live_jobs.turn.instructions.append(StopGang(live.engine, live.job.current, 0))
    for replica in live.running():
        end = Ended(live.job.current, replica.name, live_jobs.now, cause, restarts=replica.restarts)
        _ended(live_jobs, live.engine, end, held=False)
