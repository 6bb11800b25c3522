"""The service's side of one search: sends its requests to a worker process.

The client holds the whole state. A worker that is new, or has died, first gets everything that it does not know yet, so
no answer depends on which worker gives it.
"""

import asyncio
import importlib.util
import logging
import math
from collections.abc import Iterable, Mapping

import msgspec

from turnout.child_processes.child import ChildDied, Closed
from turnout.errors import Invalid, Misconfigured, TimedOut, Unavailable
from turnout.job import Trial, TrialState
from turnout.job.algorithms import LARGEST_SEED, check
from turnout.job.search import Point, Search, how_to_install
from turnout.search.curve import Curve
from turnout.search.messages import (
    Ask,
    ComputeImportance,
    Draw,
    MetricValue,
    Open,
    Scan,
    ShouldStop,
    StudyReply,
    StudyRequest,
)
from turnout.search.suggester import KnownTrial
from turnout.search.worker_pool import SearchWorkerPool, Worker

PACKAGES = ("bayes_opt", "hyperopt", "optuna", "sklearn", "matplotlib")
SCAN_SECONDS = 20.0
REQUEST_SECONDS = 300.0
"""How long an algorithm may take for one point."""
_TRIES = 3
_installed: set[str] = set()

_log = logging.getLogger(__name__)

Curves = Mapping[int, Curve]


def missing_packages() -> list[str]:
    """The modules of the extra `search` that are not installed; imports none of them.

    Looks for each on disk until it was found once, because every new search asks.
    """
    _installed.update(name for name in PACKAGES if name not in _installed and importlib.util.find_spec(name))
    return [name for name in PACKAGES if name not in _installed]


class StudyClient:
    """Trials are numbered from 0 in the order in which their points are asked for.

    A search asks for the points 0, 1, 2, … and tells the result of each. The algorithms account for points without a
    result as running trials.
    """

    def __init__(self, pool: SearchWorkerPool) -> None:
        self._pool = pool
        self._project = ""
        self._search: Search | None = None
        self._seed = 0
        self._trials: dict[int, KnownTrial] = {}
        self._unsent: set[int] = set()
        self._sent: dict[int, tuple[int, int]] = {}
        """How many points, and how many values, of each trial's curve were sent."""
        self._worker: Worker | None = None
        """The worker that answered last; it knows this search as `_session`."""
        self._session = 0
        self._turn = asyncio.Lock()

    async def open(self, search: Search, seed: int, trials: Iterable[Trial], project: str = "") -> None:
        """`seed`: the default of algorithms without a seed. Raises Invalid if the search is not valid."""
        check(search)
        self._project = project
        self._search, self._seed = search, seed % (LARGEST_SEED + 1)
        self._trials = {trial.number: _known_trial(trial) for trial in trials}
        self._worker = None

    async def ask(self, number: int) -> Point:
        """The point of a trial; the same point if it was asked for before."""
        if number in self._trials:
            return self._trials[number].point
        answer = await self._request(Ask(number))
        if answer.point is None:
            raise Unavailable("the search process gave no point")
        self._trials.setdefault(number, KnownTrial(number, answer.point))
        return answer.point

    async def tell(self, number: int, value: float | None) -> None:
        """The result of a trial; None, NaN and infinity mean that it failed."""
        value = value if value is not None and math.isfinite(value) else None
        self._trials[number] = KnownTrial(number, self._trials[number].point, value, done=True)
        self._unsent.add(number)

    async def should_stop(self, number: int, curves: Curves) -> bool:
        """`curves` are those of all trials of the search."""
        if self._search is None or self._search.stopping is None:
            return False
        return (await self._request(ShouldStop(number), curves)).stop

    async def scan(self, lines: list[str]) -> list[tuple[int, dict[str, str]]]:
        """(index of the line, metric → matched text), by the regular expressions of the search.

        The worker applies them, because an expression that a user wrote may take forever.
        """
        return list((await self._request(Scan(lines), seconds=SCAN_SECONDS)).found)

    async def importance(self) -> list[tuple[str, float, float]]:
        """(name, mean, std) of each parameter that varies, the largest first; empty if there are too few results."""
        return [
            (weight.name, weight.mean, weight.std)
            for weight in (await self._request(ComputeImportance())).importance
        ]

    async def picture(self, name: str = "") -> bytes:
        """A PNG of the metric along this parameter; without a name, of the importance of all parameters."""
        return (await self._request(Draw(name))).picture

    async def _request(
        self, request: StudyRequest, curves: Curves | None = None, seconds: float = REQUEST_SECONDS
    ) -> StudyReply:
        if self._search is None:
            raise Invalid("the search must be opened first")
        async with self._turn:
            answer = await self._until_answered(self._search, request, curves or {}, seconds)
        if answer.missing_package:
            raise Misconfigured(how_to_install([answer.missing_package]))
        if answer.out_of_memory:
            raise Unavailable(
                f"the search needs more memory than its process may use: [limits] search_memory is {self._pool.memory}"
            )
        if answer.library_error:
            raise Unavailable(f"the search library failed: {answer.library_error}")
        if answer.invalid:
            raise Invalid(answer.invalid)
        return answer

    async def _until_answered(
        self, search: Search, request: StudyRequest, curves: Curves, seconds: float
    ) -> StudyReply:
        error, retried = "", False
        for _ in range(_TRIES):
            async with self._pool.worker(self._project, self._worker) as worker:
                try:
                    answer = await self._send(worker, search, request, curves, seconds)
                    if not answer.out_of_memory:
                        return answer
                    # Other searches may have used up its memory: try once more in a new process.
                    await worker.end()
                    if retried:
                        return answer
                    retried = True
                except ChildDied as died:
                    error = died.message
                    _log.warning("%s; the request is sent again", error)
                except TimeoutError:
                    raise _too_slow(request, seconds) from None
                except Closed as closed:
                    raise TimedOut(closed.message) from None
        raise Unavailable(f"{error}, {_TRIES} times: is [limits] search_memory = {self._pool.memory} enough?")

    async def _send(
        self, worker: Worker, search: Search, request: StudyRequest, curves: Curves, seconds: float
    ) -> StudyReply:
        if worker is self._worker:
            answer = await worker.request(self._with_updates(request, curves), seconds)
            if not answer.unknown_session:
                return answer
        self._worker, self._session = worker, worker.new_session()
        self._unsent, self._sent = set(self._trials), {}
        answer = await worker.request(Open(search, self._seed, session=self._session), seconds)
        if answer.library_error or answer.out_of_memory or answer.invalid or answer.missing_package:
            return answer
        return await worker.request(self._with_updates(request, curves), seconds)

    def _with_updates(self, request: StudyRequest, curves: Curves) -> StudyRequest:
        changed_trials = [self._trials[number] for number in sorted(self._unsent)]
        self._unsent.clear()
        request = msgspec.structs.replace(request, changed_trials=changed_trials, session=self._session)
        if not isinstance(request, ShouldStop):
            return request
        new_values: dict[int, list[MetricValue]] = {}
        best_and_last: dict[int, list[MetricValue]] = {}
        for number, curve in curves.items():
            points, count = self._sent.get(number, (0, 0))
            if curve.count > count:
                new_values[number], best_and_last[number] = curve.points[points:], curve.best_and_last()
                self._sent[number] = len(curve.points), curve.count
        return msgspec.structs.replace(request, new_values=new_values, best_and_last=best_and_last)


def _too_slow(request: StudyRequest, seconds: float) -> Invalid | Unavailable:
    if isinstance(request, Scan):
        return Invalid(f"the regular expressions of the metrics took more than {seconds:g} seconds")
    return Unavailable(f"the search library took more than {seconds:g} seconds")


def _known_trial(trial: Trial) -> KnownTrial:
    done = trial.state in (TrialState.SUCCEEDED, TrialState.INFEASIBLE)
    value = trial.value if trial.state is TrialState.SUCCEEDED else None
    finite = value if value is not None and math.isfinite(value) else None
    return KnownTrial(trial.number, trial.parameters, finite, done)
