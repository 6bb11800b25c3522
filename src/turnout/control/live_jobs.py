"""All live jobs in memory, and the turn under construction."""

from collections import defaultdict
from collections.abc import Callable, Mapping

from turnout.control.live_job import LiveJob
from turnout.control.node_pool import NodePool
from turnout.control.placed_jobs import PlacedJobs
from turnout.control.queue import Queue
from turnout.control.transitions import Transitions
from turnout.control.turn import Turn
from turnout.control.usage import UsedResources
from turnout.engines import NO_ENGINE, Traits
from turnout.job import Attempt, Event, EventKind, Job, Node, Replica, State, Trial
from turnout.projects import Quotas

Handle = tuple[str, str, str]
"""Project, scope and handle. Unless the handle is empty, no two jobs that are not deleted share one."""


class LiveJobs:
    def __init__(
        self, engines: Mapping[str, Traits], engine_of: Callable[[str], str], quotas: Quotas | None = None
    ) -> None:
        """`engines` by name. `engine_of`: the name of the engine behind a cluster."""
        self.jobs: dict[int, LiveJob] = {}
        self.engines = engines
        self.quotas = quotas or Quotas()
        self.pools: dict[str, NodePool] = {name: NodePool() for name in (*engines, NO_ENGINE)}
        self.queues: dict[str, Queue] = {name: Queue() for name in self.pools}
        self.ready: set[str] = set()
        """Engines that have reported everything they hold. No job is placed on the others yet."""
        self.drained: set[str] = set()
        """Engines that take no new jobs, because an operator wants it so."""
        self.heads: dict[str, int] = {}
        """The head of each engine's queue, as the last look at the queue found it."""
        self.handles: dict[Handle, int] = {}
        """The id of the live job that has this handle."""
        self.placed = PlacedJobs()
        self.transitions = Transitions()
        self.used = UsedResources()
        self.finishing: dict[int, LiveJob] = {}
        """Jobs whose lead has succeeded while other replicas still run."""
        self.searches: dict[int, LiveJob] = {}
        self.begun_searches: dict[int, LiveJob] = {}
        """Those whose first trial has started: only they can reach a time limit."""
        self._waiting_searches = defaultdict[str, set[int]](set)
        """By project: those whose first trial has not started."""
        self._searches_of_owner = defaultdict[str, set[int]](set)
        """The same by owner."""
        self.trials: dict[int, Trial] = {}
        """Unfinished trials by job id. Some of their jobs may have ended."""
        self.broken: dict[int, str] = {}
        """Live jobs whose record cannot be read, and why. The controller ends them."""
        self.turn = Turn()
        self.now = 0
        """The wall-clock time of this turn, for stored times. Setting the clock can move it back."""
        self.steady = 0
        """The steady-clock time of this turn. Every deadline is measured by it."""
        self.engine_of = engine_of
        self._changed_jobs: dict[int, Job] = {}
        self._changed_replicas: dict[tuple[int, int, str, int], Replica] = {}
        self._changed_trials: dict[tuple[int, int], Trial] = {}

    def live(self, attempt: Attempt) -> LiveJob | None:
        """The placed job whose current attempt this is."""
        live = self.jobs.get(attempt.job)
        return live if live and live.job.attempt == attempt.number and live.replicas else None

    def engine_for(self, job_id: int) -> str:
        """The engine of a live job; NO_ENGINE if it has none."""
        return self.jobs[job_id].engine if job_id in self.jobs else NO_ENGINE

    def known(self, job_id: int, stored: Job | None) -> Job | None:
        """The job with the changes of this turn, or else as the store has it."""
        live = self.jobs.get(job_id)
        return live.job if live else self._changed_jobs.get(job_id) or stored

    def resize(self, engine: str, nodes: tuple[Node, ...]) -> None:
        """Replaces the nodes, and keeps the allocations of placed jobs on those that remain."""
        pool = self.pools[engine]
        pool.resize(nodes)
        for live in self.placed.on(engine):
            live.placement = pool.reallocated(live.placement, live.spec, live.parts)
            pool.take(live.placement)

    def admit(self, live: LiveJob) -> None:
        job = live.job
        self.jobs[job.id] = live
        self.transitions.begin(live, self.by_steady(job.updated))
        # A retried job returned to the queue with its last change. An amendment since then makes its wait look shorter.
        live.queued_at = self.by_steady(job.updated if live.past else job.created)
        if job.handle and job.deleted is None:
            self.handles[(job.project, job.scope, job.handle)] = job.id
        if live.is_search:
            self.searches[job.id] = live
            if job.state is State.QUEUED:
                self._waiting_searches[job.project].add(job.id)
                self._searches_of_owner[job.owner].add(job.id)
            self.trials |= {trial.child: trial for trial in live.trials.values()}

    def begin_search(self, live: LiveJob, since: int) -> None:
        """`since`: when its first trial started, by the steady clock."""
        live.running_since = since
        self.begun_searches[live.job.id] = live
        self._no_longer_waits(live.job)

    def drop_search(self, job: Job) -> None:
        """Call it when a job has ended. Does nothing if it is not a search."""
        self.searches.pop(job.id, None)
        self.begun_searches.pop(job.id, None)
        self._no_longer_waits(job)

    def _no_longer_waits(self, search: Job) -> None:
        self._waiting_searches[search.project].discard(search.id)
        if mine := self._searches_of_owner.get(search.owner):
            mine.discard(search.id)
            if not mine:
                del self._searches_of_owner[search.owner]

    def waiting(self, project: str) -> int:
        """How many jobs of the project wait, on all engines."""
        queued = sum(queue.count(project) for queue in self.queues.values())
        return queued + len(self._waiting_searches[project])

    def waiting_of_owner(self, owner: str) -> int:
        """How many jobs of a key with a quota wait, on all engines."""
        queued = sum(queue.count_of_owner(owner) for queue in self.queues.values())
        return queued + len(self._searches_of_owner.get(owner, ()))

    def enqueue(self, live: LiveJob) -> None:
        self.queues[live.engine].add(
            live.job,
            live.spec,
            live.parts,
            front=live.retried,
            until=live.gives_up_at,
            owner=live.job.owner if self.quotas.of_key(live.job.owner) else "",
        )

    def by_steady(self, at: int) -> int:
        """The steady-clock time of a wall-clock time; times in the future count as now."""
        return self.steady - max(0, self.now - at)

    def change(self, job: Job) -> None:
        job.updated = max(self.now, job.updated, job.started or 0, job.ended or 0)
        self._changed_jobs[job.id] = job

    def change_replica(self, replica: Replica) -> None:
        self._changed_replicas[(replica.job, replica.attempt, replica.role, replica.index)] = replica

    def change_trial(self, trial: Trial) -> None:
        self._changed_trials[trial.job, trial.number] = trial
        self.turn.changed.add(trial.job)

    def event(self, job: Job, kind: EventKind, message: str, at: int | None = None) -> None:
        self.turn.changed.add(job.id)
        at = max(at or self.now, job.created)
        if live := self.jobs.get(job.id):
            at = live.last_event_at = max(at, live.last_event_at)
        else:
            at = max(at, job.updated)
        if at > job.updated:
            # The clock of an engine may be ahead. The next service knows from `updated` when the last event was.
            job.updated = at
            self._changed_jobs[job.id] = job
        self.turn.batch.events.append(Event(job.id, at, kind, message))

    def begin_turn(self, now: int, steady: int) -> None:
        self.turn, self.now, self.steady = Turn(), now, steady
        self._changed_jobs, self._changed_replicas, self._changed_trials = {}, {}, {}

    def end_turn(self) -> Turn:
        turn = self.turn
        fresh = {job.id for job, _ in turn.batch.created}
        placed = {id(replica) for replica in turn.batch.attempts}
        turn.batch.jobs.extend(job for job in self._changed_jobs.values() if job.id not in fresh)
        turn.batch.replicas.extend(
            replica for replica in self._changed_replicas.values() if id(replica) not in placed
        )
        begun = {(trial.job, trial.number) for trial in turn.batch.new_trials}
        turn.batch.trials.extend(trial for key, trial in self._changed_trials.items() if key not in begun)
        turn.changed |= self._changed_jobs.keys()
        created = [job for job, _ in turn.batch.created]
        turn.transitions = self.transitions.of_turn(
            created, self._changed_jobs.values(), self.jobs, self.steady
        )
        turn.wake_at = self._next_wake()
        return turn

    def _next_wake(self) -> int | None:
        times = [live.finish_at for live in self.finishing.values() if live.finish_at]
        times += [live.overdue_at for live in self.begun_searches.values() if live.overdue_at]
        for engine in self.ready:
            deadline = self.queues[engine].next_deadline()
            if deadline is not None:
                times.append(deadline)
            if self.engines[engine].pending is not None:
                times += [live.gives_up_at for live in self.placed.pending_on(engine) if live.gives_up_at]
        return min(times, default=None)
