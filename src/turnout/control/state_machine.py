"""The pure half of control: commands and reports in; rows, events and instructions out.

No I/O, no clock, no task. `step` takes one turn's inputs and the time, updates the live jobs in memory, and returns
everything that must be written and then done. The caller commits first and acts afterwards. If the commit fails, the
caller discards the state machine and builds it again from the store.
"""

import logging
from collections.abc import Iterable

from turnout.control import commands, reports
from turnout.control.allocations import stored_allocations
from turnout.control.ends import end_stragglers, set_straggler_deadline
from turnout.control.live_job import LiveJob
from turnout.control.live_jobs import LiveJobs
from turnout.control.scheduling import schedule
from turnout.control.stopping import end_broken, end_overdue
from turnout.control.turn import BrokenJob, EngineReport, Input, Tick, Turn
from turnout.control.verdict import stored_verdict
from turnout.engines import NO_ENGINE
from turnout.job import State
from turnout.store import LiveRecord

log = logging.getLogger(__name__)


class StateMachine(LiveJobs):
    def load(self, stored: Iterable[LiveRecord], now: int, steady: int) -> None:
        """Loads the live jobs from the store. The engines report the rest."""
        self.now, self.steady = now, steady
        for row in stored:
            try:
                self._load(row)
                if row.trouble:
                    self.broken[row.job.id] = row.trouble
            except Exception as error:  # one bad record must not keep the service from starting
                log.exception("job %d cannot be loaded", row.job.id)
                self._load_broken(row, error)

    def _load(self, row: LiveRecord) -> None:
        live = LiveJob(row.job, row.spec, self._engine_of_record(row), past=list(row.past))
        live.verdict = stored_verdict(row.job)
        live.trials = {trial.number: trial for trial in row.trials}
        live.best = row.job.message if live.verdict is None else ""
        self.admit(live)
        if live.is_search:
            if row.job.started:
                self.begin_search(live, self.by_steady(row.job.started))
            return
        if row.job.state is State.QUEUED:
            self.enqueue(live)
            return
        live.replicas = {replica.name: replica for replica in row.replicas}
        live.placement = stored_allocations(live) if live.running() else {}
        live.running_since = live.lead.started and self.by_steady(live.lead.started)
        self.placed.add(live)
        if live.verdict and live.verdict.state is State.SUCCEEDED and live.lead.ended:
            set_straggler_deadline(self, live, live.lead.ended)

    def _engine_of_record(self, row: LiveRecord) -> str:
        """The engine of the job's cluster; none if the job was submitted to an engine of another kind."""
        name = self.engine_of(row.job.cluster)
        submission = row.submission
        elsewhere = submission and name and submission.engine != self.engines[name].kind
        return NO_ENGINE if elsewhere else name

    def _load_broken(self, row: LiveRecord, error: Exception) -> None:
        self.placed.remove(row.job.id)
        try:
            self.admit(LiveJob(row.job, row.spec, self.engine_of(row.job.cluster)))
        except Exception:
            log.exception("job %d cannot even be ended: it is left as it is", row.job.id)
            return
        self.broken[row.job.id] = f"its record cannot be read: {type(error).__name__}: {error}"

    def inherit(self, other: "StateMachine") -> None:
        """Takes over what a failed commit does not change: the engines' capacity and the times on the steady clock."""
        self.ready, self.drained, self.heads = other.ready, other.drained, other.heads
        for job_id, live in self.jobs.items():
            before = other.jobs.get(job_id)
            if before and len(before.past) == len(live.past):
                self._keep_times(live, before)
        for name, pool in other.pools.items():
            self.resize(name, pool.nodes)

    def _keep_times(self, live: LiveJob, before: LiveJob) -> None:
        live.queued_at = before.queued_at
        if live.running_since is not None and before.running_since is not None:
            live.running_since = before.running_since
            self.placed.runs(live)
        if live.finish_at is not None and before.finish_at is not None:
            live.finish_at = before.finish_at
        if live.job.id in self.queues[live.engine]:
            self.enqueue(live)

    def step(self, inputs: Iterable[Input], now: int, steady: int) -> Turn:
        """`now` is the wall clock, `steady` the steady clock, both in nanoseconds."""
        self.begin_turn(now, steady)
        for input_ in inputs:
            match input_:
                case EngineReport(engine, report):
                    reports.apply(self, engine, report)
                case BrokenJob(job_id, why):
                    end_broken(self, job_id, why)
                case Tick():
                    pass
                case _:
                    self.turn.answers.append(commands.answer(self, input_))
        end_stragglers(self)
        end_overdue(self)
        for engine in self.engines:
            schedule(self, engine)
        return self.end_turn()
