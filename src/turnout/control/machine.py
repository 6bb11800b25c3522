"""The deciding half of control: commands and reports in; rows, events and instructions out.

No I/O, no clock, no task. `step` takes one turn's inputs and the time, changes the machine's own picture of the live
jobs, and returns all that must be written and then done. Whoever calls it commits first and acts afterwards; if the
commit fails, the machine is thrown away and built anew from the store.
"""

from collections.abc import Iterable

from turnout.control.pool import Placement, Pool
from turnout.control.queue import Queue, Release, Waiting, may_pass, reservation
from turnout.control.seats import counted, remembered_seats, seated, words_of
from turnout.control.turn import (
    Command,
    Create,
    Delete,
    Forget,
    Input,
    Live,
    Remove,
    Save,
    StartGang,
    Stop,
    StopGang,
    Tick,
    Told,
    Turn,
)
from turnout.control.verdict import Verdict, explain_end, judge, judged_before, without_results
from turnout.errors import AlreadyExists, NotFound, TurnoutError, Unavailable, WrongState
from turnout.job import (
    Attempt,
    Capacity,
    Cause,
    Ended,
    Event,
    EventKind,
    Job,
    Launch,
    Reason,
    Replica,
    ReplicaState,
    Report,
    Saved,
    Started,
    State,
    Synced,
    Trimmed,
    WhenLeadSucceeds,
)
from turnout.job.resources import Share
from turnout.store import LiveJob

SECOND = 1_000_000_000


class Machine:
    def __init__(self, engines: Iterable[str], clusters: dict[str, str]) -> None:
        self.jobs: dict[int, Live] = {}
        self.pools: dict[str, Pool] = {name: Pool() for name in engines}
        self.queues: dict[str, Queue] = {name: Queue() for name in self.pools}
        self.ready: set[str] = set()
        """Engines that have told all they hold: before that nothing new is placed on them."""
        self._clusters = clusters
        self._handles: dict[tuple[str, str, str], int] = {}
        self._placed: dict[int, Live] = {}
        self._finishing: dict[int, Live] = {}
        self._turn = Turn()
        self._now = 0
        self._touched: dict[int, Job] = {}
        self._moved: dict[tuple[int, int, str, int], Replica] = {}

    def load(self, stored: Iterable[LiveJob]) -> None:
        """Take up the jobs that the store says are live. Their engines tell the rest."""
        for row in stored:
            live = Live(row.job, row.spec, self.engine_of(row.job.cluster))
            live.replicas = {replica.name: replica for replica in row.replicas}
            live.verdict = judged_before(row.job)
            self._admit(live)
            if row.job.state is State.QUEUED:
                self.queues[live.engine].add(row.job, row.spec, live.share)
                live.replicas = {}
                continue
            live.placement = remembered_seats(live)
            self._placed[row.job.id] = live
            if live.verdict and live.verdict.state is State.SUCCEEDED and live.lead.ended:
                self._finish_later(live, live.lead.ended)

    def inherit(self, other: "Machine") -> None:
        """What engines have told about themselves outlives a failed commit."""
        self.ready = other.ready
        for name, pool in other.pools.items():
            pool.resize(pool.nodes, self._placements(name))
            self.pools[name] = pool

    def step(self, inputs: Iterable[Input], now: int) -> Turn:
        self._turn, self._now = Turn(), now
        self._touched, self._moved = {}, {}
        for one in inputs:
            match one:
                case Create() | Stop() | Delete():
                    self._turn.answers.append(self._answer(one))
                case Told(engine, report):
                    self._take_report(engine, report)
                case Tick():
                    pass
        self._end_stragglers()
        for engine in self.queues:
            self._schedule(engine)
        return self._finish_turn()

    # Commands

    def _answer(self, command: Command) -> Job | TurnoutError:
        try:
            match command:
                case Create():
                    return self._create(command)
                case Stop():
                    return self._stop(command)
                case Delete():
                    return self._delete(command)
        except TurnoutError as error:
            return error

    def _create(self, command: Create) -> Job:
        new = command.new
        handle = (new.project, new.scope, new.handle)
        if new.handle and (command.taken or handle in self._handles):
            raise AlreadyExists(
                f"a job named {new.name} exists already: delete it first, or take another name"
            )
        engine = self.engine_of(new.cluster)
        job = Job(
            id=command.job_id,
            project=new.project,
            dialect=new.dialect,
            scope=new.scope,
            handle=new.handle,
            name=new.name,
            cluster=new.cluster,
            state=State.QUEUED,
            priority=new.spec.policy.priority,
            created=self._now,
            updated=self._now,
        )
        live = Live(job, new.spec, engine)
        pool, wanted = self.pools[engine], live.share.gpus
        if pool.nodes and wanted > pool.total.gpus:
            there = pool.total.gpus or "none"
            raise Unavailable(f"{counted(wanted, 'GPU')} asked for, but cluster {new.cluster} has {there}")
        self._admit(live)
        self.queues[engine].add(job, new.spec, live.share)
        self._turn.batch.created.append((job, new))
        self._event(job, EventKind.CREATED, f"created on {new.cluster}")
        for note in new.notes:
            self._event(job, EventKind.NOTE, note)
        return job

    def _stop(self, command: Stop) -> Job:
        live = self.jobs.get(command.job_id)
        if live is None:
            raise WrongState("the job has ended already")
        self._begin_stop(live, Verdict(State.STOPPED, Reason.STOPPED, f"stopped by {command.by}"))
        return live.job

    def _delete(self, command: Delete) -> Job:
        live = self.jobs.get(command.job_id)
        job = live.job if live else command.stored or self._ended_now(command.job_id)
        if job is None or job.deleted:
            raise NotFound("no such job")
        job.deleted = self._now
        self._change(job)
        self._handles.pop((job.project, job.scope, job.handle), None)
        self._event(job, EventKind.DELETED, f"deleted by {command.by}")
        if live:
            self._begin_stop(live, Verdict(State.STOPPED, Reason.STOPPED, f"deleted by {command.by}"))
        else:
            self._remove(job)
        return job

    def _ended_now(self, job_id: int) -> Job | None:
        """One that was live when the command came and has ended in this very turn."""
        return next((job for job in self._turn.ended if job.id == job_id), None)

    def _begin_stop(self, live: Live, verdict: Verdict) -> None:
        """Idempotent; the first verdict stands."""
        if live.job.state is State.QUEUED:
            self.queues[live.engine].remove(live.job.id)
            live.verdict = verdict
            self._end_job(live)
            return
        if live.job.state is State.STOPPING:
            return
        self._decide(live, verdict)
        live.job.state = State.STOPPING
        self._event(live.job, EventKind.STOPPING, verdict.message)
        self._stop_replicas(live, live.running())

    # Reports

    def _take_report(self, engine: str, report: Report) -> None:
        match report:
            case Started():
                self._started(report)
            case Ended():
                self._ended(engine, report)
            case Saved():
                self._saved(report)
            case Trimmed():
                live = self._live(report.attempt)
                if live:
                    self._event(live.job, EventKind.TRIMMED, report.message, report.at)
            case Capacity(nodes):
                self.pools[engine].resize(nodes, self._placements(engine))
            case Synced(held):
                self._synced(engine, held)

    def _started(self, report: Started) -> None:
        live = self._live(report.attempt)
        replica = live and live.replicas.get(report.replica)
        if live is None or replica is None or replica.state is not ReplicaState.WAITING:
            return
        replica.state, replica.started = ReplicaState.RUNNING, report.at
        replica.pid, replica.address = report.pid, report.address
        self._move(replica)
        if replica is live.lead and live.job.state is State.PREPARING:
            live.job.state = State.RUNNING
            live.job.started = live.job.started or report.at
            self._change(live.job)
            self._event(
                live.job, EventKind.STARTED, f"{report.replica} runs as process {report.pid}", report.at
            )

    def _ended(self, engine: str, report: Ended) -> None:
        live = self._live(report.attempt)
        if live is None:
            self._turn.instructions.append(Forget(engine, report.attempt))
            return
        replica = live.replicas.get(report.replica)
        if replica is None or replica.ended is not None:
            return
        replica.ended, replica.exit_code, replica.signal = report.at, report.code, report.signal
        replica.message = explain_end(report)
        good = report.cause is Cause.EXIT and report.code == 0
        asked = report.cause is Cause.STOPPED
        replica.state = (
            ReplicaState.SUCCEEDED if good else ReplicaState.STOPPED if asked else ReplicaState.FAILED
        )
        self._move(replica)
        self._change(live.job)
        if good and replica is live.lead:
            self._lead_succeeded(live, report.at)
        elif not good and live.verdict is None:
            self._fail(live, judge(report))
        if not live.running():
            self._attempt_over(live)

    def _saved(self, report: Saved) -> None:
        live = self._live(report.attempt)
        if live is None or live.running():
            return
        live.saved_at = report.at
        if report.message:
            self._event(live.job, EventKind.SAVED, report.message, report.at)
        if report.trouble and live.verdict:
            live.verdict = without_results(live.verdict, report.trouble)
        self._end_attempt(live)

    def _lead_succeeded(self, live: Live, at: int) -> None:
        if live.verdict is None:
            self._decide(live, Verdict(State.SUCCEEDED, Reason.SUCCEEDED, ""))
        if live.job.state is not State.STOPPING:
            self._stop_replicas(live, _end_with_lead(live))
        self._finish_later(live, at)

    def _finish_later(self, live: Live, lead_ended: int) -> None:
        live.finish_at = lead_ended + int(live.spec.policy.finish_seconds * SECOND)
        self._finishing[live.job.id] = live

    def _fail(self, live: Live, verdict: Verdict) -> None:
        self._decide(live, verdict)
        others = live.running()
        if others and live.job.state is not State.STOPPING:
            live.job.state = State.STOPPING
            self._event(live.job, EventKind.STOPPING, verdict.message)
            self._stop_replicas(live, others)

    def _synced(self, engine: str, held: frozenset[Attempt]) -> None:
        """Compare what the engine holds with what should be there; whatever is missing is lost, or never began."""
        self.ready.add(engine)
        ours: set[Attempt] = set()
        for live in list(self._placed.values()):
            if live.engine != engine:
                continue
            ours.add(live.job.current)
            if not live.running():
                # Its last results may not be where they belong.
                self._turn.instructions.append(Save(engine, live.job.current))
            elif live.job.current in held:
                self._stop_again(live)
            elif live.job.state is State.PREPARING:
                self._turn.instructions.append(StartGang(engine, live.launch()))
            else:
                self._lose(live)
        for attempt in held - ours:
            self._turn.instructions.append(StopGang(engine, attempt, 0))
            self._turn.instructions.append(Forget(engine, attempt))

    def _stop_again(self, live: Live) -> None:
        """An instruction to stop may have been lost with the service that gave it."""
        if live.job.state is State.STOPPING:
            self._stop_replicas(live, live.running())
        elif live.finish_at is not None:
            self._stop_replicas(live, _end_with_lead(live))
            self._finishing[live.job.id] = live

    def _lose(self, live: Live) -> None:
        never_began = live.verdict is not None and all(r.started is None for r in live.running())
        cause = Cause.STOPPED if never_began else Cause.LOST
        for replica in live.running():
            self._ended(live.engine, Ended(live.job.current, replica.name, self._now, cause))

    # Ends

    def _decide(self, live: Live, verdict: Verdict) -> None:
        """The outcome is written down as soon as it is certain, so that it outlives the service."""
        if live.verdict is None:
            live.verdict = verdict
            live.job.reason, live.job.message = verdict.reason, verdict.message
        self._change(live.job)

    def _end_stragglers(self) -> None:
        for live in list(self._finishing.values()):
            if live.finish_at is not None and live.finish_at <= self._now:
                del self._finishing[live.job.id]
                self._stop_replicas(live, live.running())

    def _stop_replicas(self, live: Live, replicas: list[Replica]) -> None:
        if replicas:
            names = tuple(replica.name for replica in replicas)
            grace = live.spec.policy.grace
            self._turn.instructions.append(StopGang(live.engine, live.job.current, grace, names))

    def _attempt_over(self, live: Live) -> None:
        """It has ended when its results are where they belong, also if it failed or was stopped."""
        self.pools[live.engine].give(live.placement)
        live.placement = {}
        self._finishing.pop(live.job.id, None)
        began = any(replica.started for replica in live.replicas.values())
        if began and live.spec.saves:
            self._turn.instructions.append(Save(live.engine, live.job.current))
        else:
            self._end_attempt(live)

    def _end_attempt(self, live: Live) -> None:
        verdict = live.verdict
        assert verdict is not None, "a gang whose members have all ended has a verdict"
        self.pools[live.engine].give(live.placement)
        self._placed.pop(live.job.id, None)
        self._finishing.pop(live.job.id, None)
        policy, job = live.spec.policy, live.job
        again = verdict.reason in policy.retry_on and job.attempt <= policy.retries and job.deleted is None
        if not again:
            self._end_job(live)
            return
        self._turn.instructions.append(Forget(live.engine, job.current))
        self._event(job, EventKind.RETRIED, f"attempt {job.attempt} ended: {verdict.message}; starting over")
        live.verdict = live.finish_at = live.saved_at = None
        live.placement, live.replicas = {}, {}
        job.state, job.reason, job.message = State.QUEUED, None, ""
        self._change(job)
        self.queues[live.engine].add(job, live.spec, live.share)

    def _end_job(self, live: Live) -> None:
        job, verdict = live.job, live.verdict
        assert verdict is not None
        job.state, job.reason, job.message = verdict.state, verdict.reason, verdict.message
        ends = [replica.ended for replica in live.replicas.values() if replica.ended]
        job.ended = max([*ends, live.saved_at or 0]) if ends else self._now
        self._change(job)
        self._event(job, EventKind.ENDED, verdict.message or str(verdict.reason), job.ended)
        self._turn.ended.append(job)
        del self.jobs[job.id]
        if self._handles.get((job.project, job.scope, job.handle)) == job.id:
            del self._handles[(job.project, job.scope, job.handle)]
        if job.attempt:
            self._turn.instructions.append(Forget(live.engine, job.current, live.spec.debug))
        if job.deleted:
            self._remove(job)

    def _remove(self, job: Job) -> None:
        attempts = tuple(Attempt(job.id, number) for number in range(1, job.attempt + 1))
        if attempts:
            self._turn.instructions.append(Remove(self.engine_of(job.cluster), attempts))

    # The queue

    def _schedule(self, engine: str) -> None:
        if engine not in self.ready or not self.queues[engine]:
            return
        while self._start_one(engine):
            pass

    def _start_one(self, engine: str) -> bool:
        """Start the first job that may start now. The head may always; others only where they do not delay it."""
        pool, head = self.pools[engine], None
        reserved: float | None = None
        for waiting in self.queues[engine].firsts():
            live = self.jobs[waiting.job_id]
            need = pool.need(live.share)
            if head is None:
                if self._try(live, pool):
                    return True
                head, reserved = need, self._reservation(engine, need)
            elif self._passes(waiting, need, head, pool, reserved) and self._try(live, pool):
                return True
        return False

    def _passes(self, waiting: Waiting, need: Share, head: Share, pool: Pool, reserved: float | None) -> bool:
        limit = waiting.spec.policy.time_limit
        return need.fits(pool.room) and may_pass(need, limit, head, pool.room, self._now / SECOND, reserved)

    def _reservation(self, engine: str, need: Share) -> float | None:
        releases: list[Release] = []
        for live in self._placed.values():
            limit = live.spec.policy.time_limit
            if live.engine == engine and limit is not None:
                share = sum((seat.share for seat in live.placement.values()), Share(0, 0, 0))
                since = live.job.started or self._now
                releases.append(Release(since / SECOND + limit + live.spec.policy.grace, share))
        return reservation(need, self.pools[engine].room, releases)

    def _try(self, live: Live, pool: Pool) -> bool:
        job = live.job
        attempt = Attempt(job.id, job.attempt + 1)
        placement = pool.place(Launch(attempt, job.project, job.dialect, job.name, live.spec), live.share)
        if placement is None:
            return False
        pool.take(placement)
        self.queues[live.engine].remove(job.id)
        job.attempt += 1
        job.state = State.PREPARING
        live.placement = placement
        self._placed[job.id] = live
        live.replicas = {name: seated(job, name, seat) for name, seat in placement.items()}
        self._turn.batch.attempts.extend(live.replicas.values())
        self._change(job)
        self._event(job, EventKind.PLACED, words_of(live, pool))
        self._turn.instructions.append(StartGang(live.engine, live.launch()))
        return True

    # Book-keeping

    def engine_of(self, cluster: str) -> str:
        """A cluster that has gone from the settings leaves its jobs to the first engine."""
        return self._clusters.get(cluster) or next(iter(self.pools))

    def _live(self, attempt: Attempt) -> Live | None:
        live = self.jobs.get(attempt.job)
        return live if live and live.job.attempt == attempt.number and live.replicas else None

    def _admit(self, live: Live) -> None:
        job = live.job
        self.jobs[job.id] = live
        if job.handle and job.deleted is None:
            self._handles[(job.project, job.scope, job.handle)] = job.id

    def _placements(self, engine: str) -> list[Placement]:
        return [live.placement for live in self._placed.values() if live.engine == engine]

    def _change(self, job: Job) -> None:
        job.updated = self._now
        self._touched[job.id] = job

    def _move(self, replica: Replica) -> None:
        self._moved[(replica.job, replica.attempt, replica.role, replica.index)] = replica

    def _event(self, job: Job, kind: EventKind, message: str, at: int | None = None) -> None:
        self._turn.changed.add(job.id)
        self._turn.batch.events.append(Event(job.id, at or self._now, kind, message))

    def _finish_turn(self) -> Turn:
        turn = self._turn
        fresh = {job.id for job, _ in turn.batch.created}
        placed = {id(replica) for replica in turn.batch.attempts}
        turn.batch.jobs.extend(job for job in self._touched.values() if job.id not in fresh)
        turn.batch.replicas.extend(replica for replica in self._moved.values() if id(replica) not in placed)
        turn.changed |= self._touched.keys()
        turn.wake_at = min(
            (live.finish_at for live in self._finishing.values() if live.finish_at), default=None
        )
        return turn


def _end_with_lead(live: Live) -> list[Replica]:
    ending = {role.name for role in live.spec.roles if role.when_lead_succeeds is WhenLeadSucceeds.END}
    return [replica for replica in live.running() if replica.role in ending]
