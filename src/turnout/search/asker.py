"""One live search, seen from the service: what is asked here is answered by a child process.

The child knows nothing that is not here. It is started with the first question, ended when nobody asks for a while,
and when it dies it is started again and told all: no answer depends on whether that happened.
"""

import asyncio
import contextlib
import importlib.util
import logging
import math
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from turnout.errors import Invalid, Misconfigured, Unavailable
from turnout.job import Measurement, Trial, TrialState
from turnout.job.algorithms import LARGEST_SEED, check
from turnout.job.search import Point, Search, how_to_install
from turnout.search.messages import Answer, Ask, Draw, Judge, Measured, Open, Scan, Weigh
from turnout.search.seen import Seen

PACKAGES = ("bayes_opt", "hyperopt", "optuna", "sklearn", "matplotlib")
IDLE_SECONDS = 60.0
SCAN_SECONDS = 20.0

_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from turnout.search.child import main; main()"
_SOURCES = Path(__file__).parents[2]
_TRIES = 3
_LONGEST_LINE = 1 << 26
# A second thread gains nothing on matrices this small, and takes a core from the trials.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_log = logging.getLogger(__name__)


def missing_packages() -> list[str]:
    """The modules of the extra `search` that are not installed; imports none of them."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


class Asker:
    """Trials are numbered from 0 in the order in which they are asked for.

    A search asks for the points 0, 1, 2, … and says of each how it ended; points without an end are waited for, and the
    algorithms reckon with them. `cache` is a directory in which the child may keep what it would else work out again.
    """

    def __init__(self, *, idle: float = IDLE_SECONDS, cache: Path | None = None) -> None:
        self._idle = idle
        self._environment = _ENVIRONMENT | ({"MPLCONFIGDIR": str(cache)} if cache else {})
        self._search: Search | None = None
        self._seed = 0
        self._trials: dict[int, Seen] = {}
        self._unsaid: set[int] = set()
        self._said: dict[int, int] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._leaving: asyncio.TimerHandle | None = None

    async def open(self, search: Search, seed: int, trials: Iterable[Trial]) -> None:
        """`seed` is for algorithms that were given none. Raises Invalid for a search that makes no sense."""
        check(search)
        self._search, self._seed = search, seed % (LARGEST_SEED + 1)
        self._trials = {trial.number: _seen(trial) for trial in trials}
        self._unsaid = set(self._trials)

    async def ask(self, number: int) -> Point:
        """The point of a trial; the same one again if it was asked for before."""
        if number in self._trials:
            return self._trials[number].point
        answer = await self._request(Ask(number))
        if answer.point is None:
            raise Unavailable("the search process gave no point")
        self._trials.setdefault(number, Seen(number, answer.point))
        return answer.point

    async def tell(self, number: int, value: float | None) -> None:
        """How a trial ended; None (or what is no number): it failed."""
        value = value if value is not None and math.isfinite(value) else None
        self._trials[number] = Seen(number, self._trials[number].point, value, done=True)
        self._unsaid.add(number)

    async def should_stop(self, number: int, measurements: Iterable[Measurement]) -> bool:
        """`measurements` are all of the search, of each trial in the order in which they came."""
        if self._search is None or self._search.stopping is None:
            return False
        name = self._search.metric.name
        curves: dict[int, list[Measured]] = {}
        for one in measurements:
            if math.isfinite(value := one.metrics.get(name, math.nan)):
                curves.setdefault(one.number, []).append(Measured(one.step, one.at, value))
        return (await self._request(Judge(number), curves)).stop

    async def scan(self, lines: list[str]) -> list[tuple[int, dict[str, str]]]:
        """Which lines have which metrics, by the expressions of the search, as they are spelt there.

        Those are a user's, who may have written one that takes for ever: that is why they are not tried here.
        """
        try:
            async with asyncio.timeout(SCAN_SECONDS):
                return (await self._request(Scan(lines))).found
        except TimeoutError:
            raise Invalid(
                f"the regular expressions of the metrics took more than {SCAN_SECONDS:g} seconds"
            ) from None

    async def importance(self, trials: Iterable[Trial] = ()) -> list[tuple[str, float, float]]:
        """(name, mean, std) of each parameter that varies, the largest first; empty: there is too little to go by."""
        self._update(trials)
        return [(one.name, one.mean, one.std) for one in (await self._request(Weigh())).weights]

    async def picture(self, name: str = "") -> bytes:
        """A PNG: the metric along this parameter; without a name, the importance of all."""
        return (await self._request(Draw(name))).picture

    async def close(self) -> None:
        """Ends the child. The next question would start another."""
        if self._leaving:
            self._leaving.cancel()
        async with self._turn:
            await self._end()

    def _update(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            seen = _seen(trial)
            if self._trials.get(trial.number) != seen:
                self._trials[trial.number] = seen
                self._unsaid.add(trial.number)

    async def _request(
        self, request: Ask | Judge | Weigh | Draw | Scan, curves: dict[int, list[Measured]] | None = None
    ) -> Answer:
        if self._search is None:
            raise Invalid("the search must be opened first")
        if self._leaving:
            self._leaving.cancel()
        async with self._turn:
            try:
                answer = await self._ask_until_answered(request, curves or {})
            except asyncio.CancelledError:
                # Its answer would be taken for that of the next question.
                await self._end()
                raise
        self._leaving = asyncio.get_running_loop().call_later(self._idle, self._leave)
        if answer.missing:
            raise Misconfigured(how_to_install([answer.missing]))
        if answer.broken:
            raise Unavailable(f"the search library failed: {answer.broken}")
        if answer.wrong:
            raise Invalid(answer.wrong)
        return answer

    async def _ask_until_answered(self, request: Any, curves: dict[int, list[Measured]]) -> Answer:
        for _ in range(_TRIES):
            try:
                if self._process is None or self._process.returncode is not None:
                    await self._start()
                return await self._say(self._with_news(request, curves))
            except (ConnectionError, EOFError):
                how = await self._end()
                _log.warning("the search process was lost (%s) and is started again", how)
        raise Unavailable(f"the search process ended {_TRIES} times ({how}): is there enough memory?")

    def _with_news(self, request: Any, curves: dict[int, list[Measured]]) -> Any:
        news = [self._trials[number] for number in sorted(self._unsaid)]
        self._unsaid.clear()
        if not isinstance(request, Judge):
            return msgspec.structs.replace(request, news=news)
        more = {number: curve[self._said.get(number, 0) :] for number, curve in curves.items()}
        self._said |= {number: len(curve) for number, curve in curves.items()}
        return msgspec.structs.replace(
            request, news=news, measured={n: new for n, new in more.items() if new}
        )

    async def _start(self) -> None:
        await self._end()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-c", _START, str(_SOURCES),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_LONGEST_LINE,
                cwd="/",
                env=self._environment,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Unavailable(f"the search process cannot be started: {error.strerror}") from None
        self._unsaid, self._said = set(self._trials), {}
        assert self._search is not None
        await self._say(Open(self._search, self._seed))

    async def _say(self, request: Any) -> Answer:
        process = self._process
        assert process
        assert process.stdin
        assert process.stdout
        process.stdin.write(msgspec.json.encode(request) + b"\n")
        await process.stdin.drain()
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return msgspec.json.decode(line, type=Answer)

    async def _end(self) -> str:
        """Says how the child ended, if there was one."""
        process = self._process
        if process is None:
            return "it never ran"
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # Who is called off here may close again: it is not forgotten before it is gone.
        code = await process.wait()
        self._process = None
        assert process.stdin
        process.stdin.close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _leave(self) -> None:
        if not self._turn.locked() and self._process is not None:
            self._closing = asyncio.ensure_future(self.close())


def _seen(trial: Trial) -> Seen:
    done = trial.state in (TrialState.SUCCEEDED, TrialState.INFEASIBLE)
    value = trial.value if trial.state is TrialState.SUCCEEDED else None
    fine = value if value is not None and math.isfinite(value) else None
    return Seen(trial.number, trial.parameters, fine, done)
