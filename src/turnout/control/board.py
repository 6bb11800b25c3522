"""The machine's picture of the live jobs, and the turn that is being made of it."""

from collections.abc import Iterable

from turnout.control.live import Live
from turnout.control.pool import Placement, Pool
from turnout.control.queue import Queue
from turnout.control.turn import Turn
from turnout.job import Attempt, Event, EventKind, Job, Replica, Trial

Handle = tuple[str, str, str]


class Board:
    def __init__(self, engines: Iterable[str], clusters: dict[str, str]) -> None:
        self.jobs: dict[int, Live] = {}
        self.pools: dict[str, Pool] = {name: Pool() for name in engines}
        self.queues: dict[str, Queue] = {name: Queue() for name in self.pools}
        self.ready: set[str] = set()
        """Engines that have told all they hold: before that nothing new is placed on them."""
        self.handles: dict[Handle, int] = {}
        self.placed: dict[int, Live] = {}
        self.finishing: dict[int, Live] = {}
        self.searches: dict[int, Live] = {}
        self.trials: dict[int, Trial] = {}
        """Those that are not over, by their jobs, some of which may have ended."""
        self.turn = Turn()
        self.now = 0
        self._clusters = clusters
        self._touched: dict[int, Job] = {}
        self._moved: dict[tuple[int, int, str, int], Replica] = {}
        self._tried: dict[tuple[int, int], Trial] = {}

    def engine_of(self, cluster: str) -> str:
        """A cluster that has gone from the settings leaves its jobs to the first engine."""
        return self._clusters.get(cluster) or next(iter(self.pools))

    def live(self, attempt: Attempt) -> Live | None:
        """The job whose current attempt this is, if it has been placed."""
        live = self.jobs.get(attempt.job)
        return live if live and live.job.attempt == attempt.number and live.replicas else None

    def known(self, job_id: int, stored: Job | None) -> Job | None:
        """The job as this turn has it so far: what the store knows of it may be older than that."""
        live = self.jobs.get(job_id)
        return live.job if live else self._touched.get(job_id) or stored

    def placed_on(self, engine: str) -> list[Live]:
        return [live for live in self.placed.values() if live.engine == engine]

    def placements(self, engine: str) -> list[Placement]:
        return [live.placement for live in self.placed_on(engine)]

    def admit(self, live: Live) -> None:
        job = live.job
        self.jobs[job.id] = live
        if job.handle and job.deleted is None:
            self.handles[(job.project, job.scope, job.handle)] = job.id
        if live.searches:
            self.searches[job.id] = live
            self.trials |= {trial.child: trial for trial in live.trials.values()}

    def enqueue(self, live: Live) -> None:
        self.queues[live.engine].add(
            live.job, live.spec, live.share, front=live.retried, until=live.gives_up_at
        )

    def change(self, job: Job) -> None:
        job.updated = self.now
        self._touched[job.id] = job

    def move(self, replica: Replica) -> None:
        self._moved[(replica.job, replica.attempt, replica.role, replica.index)] = replica

    def change_trial(self, trial: Trial) -> None:
        self._tried[trial.job, trial.number] = trial
        self.turn.changed.add(trial.job)

    def event(self, job: Job, kind: EventKind, message: str, at: int | None = None) -> None:
        self.turn.changed.add(job.id)
        self.turn.batch.events.append(Event(job.id, at or self.now, kind, message))

    def begin_turn(self, now: int) -> None:
        self.turn, self.now = Turn(), now
        self._touched, self._moved, self._tried = {}, {}, {}

    def end_turn(self) -> Turn:
        turn = self.turn
        fresh = {job.id for job, _ in turn.batch.created}
        placed = {id(replica) for replica in turn.batch.attempts}
        turn.batch.jobs.extend(job for job in self._touched.values() if job.id not in fresh)
        turn.batch.replicas.extend(replica for replica in self._moved.values() if id(replica) not in placed)
        begun = {(trial.job, trial.number) for trial in turn.batch.new_trials}
        turn.batch.trials.extend(trial for key, trial in self._tried.items() if key not in begun)
        turn.changed |= self._touched.keys()
        turn.wake_at = self._next_wake()
        return turn

    def _next_wake(self) -> int | None:
        times = [live.finish_at for live in self.finishing.values() if live.finish_at]
        times += [live.overdue_at for live in self.searches.values() if live.overdue_at]
        for engine in self.ready:
            deadline = self.queues[engine].next_deadline()
            if deadline is not None:
                times.append(deadline)
        return min(times, default=None)
