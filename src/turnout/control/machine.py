"""The deciding half of control: commands and reports in; rows, events and instructions out.

No I/O, no clock, no task. `step` takes one turn's inputs and the time, changes the machine's own picture of the live
jobs, and returns all that must be written and then done. Whoever calls it commits first and acts afterwards; if the
commit fails, the machine is thrown away and built anew from the store.
"""

from collections.abc import Iterable

from turnout.control import commands, reports
from turnout.control.board import Board
from turnout.control.ends import end_stragglers, finish_later
from turnout.control.live import Live
from turnout.control.placing import schedule
from turnout.control.seats import remembered_seats
from turnout.control.stopping import end_overdue
from turnout.control.turn import Input, Tick, Told, Turn
from turnout.control.verdict import judged_before
from turnout.job import State
from turnout.store import LiveJob


class Machine(Board):
    def load(self, stored: Iterable[LiveJob]) -> None:
        """Take up the jobs that the store says are live. Their engines tell the rest."""
        for row in stored:
            live = Live(row.job, row.spec, self.engine_of(row.job.cluster), past=list(row.past))
            live.verdict = judged_before(row.job)
            live.trials = {trial.number: trial for trial in row.trials}
            live.best = row.job.message if live.verdict is None else ""
            self.admit(live)
            if live.searches:
                continue
            if row.job.state is State.QUEUED:
                self.enqueue(live)
                continue
            live.replicas = {replica.name: replica for replica in row.replicas}
            live.placement = remembered_seats(live)
            self.placed[row.job.id] = live
            if live.verdict and live.verdict.state is State.SUCCEEDED and live.lead.ended:
                finish_later(self, live, live.lead.ended)

    def inherit(self, other: "Machine") -> None:
        """What engines have told about themselves outlives a failed commit."""
        self.ready = other.ready
        for name, pool in other.pools.items():
            pool.resize(pool.nodes, self.placements(name))
            self.pools[name] = pool

    def step(self, inputs: Iterable[Input], now: int) -> Turn:
        self.begin_turn(now)
        for one in inputs:
            match one:
                case Told(engine, report):
                    reports.take(self, engine, report)
                case Tick():
                    pass
                case _:
                    self.turn.answers.append(commands.answer(self, one))
        end_stragglers(self)
        end_overdue(self)
        for engine in self.queues:
            schedule(self, engine)
        return self.end_turn()
