"""The metrics of jobs in `/metrics`. They are counted as things happen, so that nothing looks at all jobs."""

from collections.abc import Callable, Iterable

from turnout.control.overview import Capacity, capacity
from turnout.control.state_machine import StateMachine
from turnout.control.turn import Turn
from turnout.histogram import Histogram
from turnout.job import State

_WAITS = (0.01, 0.1, 1, 10, 60, 300, 1800, 7200, 43_200, 172_800)
_STARTS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 120, 600, 3600)


class Measures:
    def __init__(self, machine: Callable[[], StateMachine], engines: Iterable[str]) -> None:
        """`machine`: the current one; it is replaced after a failed commit."""
        self._machine = machine
        self._engines = tuple(engines)
        self.ends: dict[str, int] = {}
        """How many jobs have ended for each reason."""
        self.waits = Histogram(_WAITS)
        """Seconds from the creation, or the end of the attempt before, until a job has a place."""
        self.starts = Histogram(_STARTS)
        """Seconds from there until its program runs: inputs are fetched meanwhile."""

    def observe(self, turn: Turn) -> None:
        """Call it when the turn is on disk."""
        for job in turn.ended:
            self.ends[str(job.reason)] = self.ends.get(str(job.reason), 0) + 1
        for change in turn.transitions:
            if change.was is State.QUEUED and change.job.attempt:
                self.waits.observe(change.seconds)
            elif change.was is State.PREPARING and change.job.state is State.RUNNING:
                self.starts.observe(change.seconds)

    def counts(self) -> dict[str, int]:
        """The number of live jobs in each state."""
        return {str(state): count for state, count in self._machine().transitions.counts.items()}

    def running(self) -> dict[tuple[str, str], int]:
        """The number of running jobs by project and cluster."""
        return dict(self._machine().transitions.running)

    def capacity(self) -> dict[str, Capacity]:
        """The capacity of each engine."""
        return {name: capacity(self._machine(), name) for name in self._engines}
