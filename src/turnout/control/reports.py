"""What engines tell, and what follows from it."""

from turnout.control.board import Board
from turnout.control.ends import (
    DECIDED_HERE,
    attempt_over,
    decide,
    end_attempt,
    end_with_lead,
    finish_later,
    stop_replicas,
    wind_up,
)
from turnout.control.live import Live
from turnout.control.restart import again_instruction, start_again
from turnout.control.retry import in_place
from turnout.control.trials import trial_started
from turnout.control.turn import Forget, Save, StartGang, StopGang
from turnout.control.verdict import Verdict, explain_end, judge, without_results
from turnout.job import (
    Attempt,
    Capacity,
    Cause,
    Ended,
    EventKind,
    Hung,
    Reason,
    ReplicaState,
    Report,
    Sampled,
    Saved,
    Started,
    State,
    Synced,
    Trimmed,
)


def take(board: Board, engine: str, report: Report) -> None:
    match report:
        case Started():
            _started(board, report)
        case Ended():
            _ended(board, engine, report)
        case Sampled(attempt, samples):
            if board.live(attempt):
                board.turn.batch.samples.extend((attempt, sample) for sample in samples)
        case Saved():
            _saved(board, report)
        case Hung():
            _hung(board, report)
        case Trimmed():
            live = board.live(report.attempt)
            if live:
                board.event(live.job, EventKind.TRIMMED, report.message, report.at)
        case Capacity(nodes):
            board.pools[engine].resize(nodes, board.placements(engine))
        case Synced(held):
            _synced(board, engine, held)


def _started(board: Board, report: Started) -> None:
    live = board.live(report.attempt)
    replica = live and live.replicas.get(report.replica)
    if live is None or replica is None or replica.state is not ReplicaState.WAITING:
        return
    if report.restarts != replica.restarts:
        return
    replica.state, replica.started = ReplicaState.RUNNING, report.at
    replica.pid, replica.address = report.pid, report.address
    board.move(replica)
    if replica is live.lead and live.job.state is State.PREPARING:
        live.job.state = State.RUNNING
        live.job.started = live.job.started or report.at
        board.change(live.job)
        board.event(live.job, EventKind.STARTED, f"{report.replica} runs as process {report.pid}", report.at)
        if trial := board.trials.get(live.job.id):
            trial_started(board, trial, report.at)


def _ended(board: Board, engine: str, report: Ended, *, held: bool = True) -> None:
    """`held`: the engine knows of its attempt and can start it again there."""
    live = board.live(report.attempt)
    if live is None:
        if report.attempt.job not in board.trials:
            board.turn.instructions.append(Forget(engine, report.attempt))
        return
    replica = live.replicas.get(report.replica)
    if replica is None or replica.ended is not None or report.restarts != replica.restarts:
        return
    replica.ended, replica.exit_code, replica.signal = report.at, report.code, report.signal
    replica.message = explain_end(report)
    good = report.cause is Cause.EXIT and report.code == 0
    asked = report.cause is Cause.STOPPED
    replica.state = ReplicaState.SUCCEEDED if good else ReplicaState.STOPPED if asked else ReplicaState.FAILED
    board.move(replica)
    board.change(live.job)
    if good and replica is live.lead:
        _lead_succeeded(board, live, report.at)
    elif not good and live.verdict is None:
        verdict = judge(report)
        again = in_place(live.spec.policy, replica, verdict.reason) if held else None
        if again:
            start_again(board, live, replica, again, report.at)
        else:
            _fail(board, live, verdict)
    if not live.running():
        attempt_over(board, live)


def _lead_succeeded(board: Board, live: Live, at: int) -> None:
    if live.verdict and live.verdict.reason in DECIDED_HERE:
        # It was done before the stop reached it.
        live.verdict = None
    if live.verdict is None:
        decide(board, live, Verdict(State.SUCCEEDED, Reason.SUCCEEDED, ""))
    if live.job.state is not State.STOPPING:
        stop_replicas(board, live, end_with_lead(live))
    finish_later(board, live, at)


def _fail(board: Board, live: Live, verdict: Verdict) -> None:
    if live.running() and live.job.state is not State.STOPPING:
        wind_up(board, live, verdict)
    else:
        decide(board, live, verdict)


def _hung(board: Board, report: Hung) -> None:
    live = board.live(report.attempt)
    if live is None or live.verdict is not None:
        return
    why = report.message or "nothing moved in the whole gang"
    wind_up(board, live, Verdict(State.FAILED, Reason.HUNG, f"it hung: {why}"), EventKind.HUNG, report.at)


def _saved(board: Board, report: Saved) -> None:
    live = board.live(report.attempt)
    if live is None or live.running():
        return
    live.saved_at = report.at
    if report.message:
        board.event(live.job, EventKind.SAVED, report.message, report.at)
    if report.trouble and live.verdict:
        live.verdict = without_results(live.verdict, report.trouble)
    end_attempt(board, live)


def _synced(board: Board, engine: str, held: frozenset[Attempt]) -> None:
    """Compare what the engine holds with what should be there; whatever is missing is lost, or never began."""
    board.ready.add(engine)
    ours: set[Attempt] = set()
    for live in board.placed_on(engine):
        ours.add(live.job.current)
        if not live.running():
            # Its last results may not be where they belong.
            board.turn.instructions.append(Save(engine, live.job.current))
        elif live.job.current in held:
            _say_again(board, live)
        elif live.job.state is State.PREPARING:
            board.turn.instructions.append(StartGang(engine, live.launch()))
        else:
            _lose(board, live)
    for attempt in held - ours:
        if attempt.job in board.trials and attempt.job not in board.jobs:
            # It has ended; what it wrote about itself may still have to be read.
            continue
        board.turn.instructions.append(StopGang(engine, attempt, 0))
        board.turn.instructions.append(Forget(engine, attempt))


def _say_again(board: Board, live: Live) -> None:
    """Instructions may have been lost with the service that gave them, or with the line to the engine."""
    for replica in live.running():
        if not replica.restarts or replica.state is not ReplicaState.WAITING:
            continue
        if live.verdict is None:
            board.turn.instructions.append(again_instruction(live, replica))
        else:
            end = Ended(live.job.current, replica.name, board.now, Cause.STOPPED, restarts=replica.restarts)
            _ended(board, live.engine, end)
    if not live.running():
        return
    if live.job.state is State.STOPPING:
        stop_replicas(board, live, live.running())
    elif live.finish_at is not None:
        stop_replicas(board, live, end_with_lead(live))
        board.finishing[live.job.id] = live


def _lose(board: Board, live: Live) -> None:
    never_began = live.verdict is not None and all(r.started is None for r in live.running())
    cause = Cause.STOPPED if never_began else Cause.LOST
    for replica in live.running():
        end = Ended(live.job.current, replica.name, board.now, cause, restarts=replica.restarts)
        _ended(board, live.engine, end, held=False)
