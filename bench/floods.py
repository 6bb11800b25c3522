"""What one project's flood costs another: the 99th percentile of three calls, compared with the same flood at a sink.

The flood itself uses the machine, and the flood at the sink shows that part. The difference is due to the service.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import flood_requests, memory
from bench.client import Line, Requests
from bench.flood_requests import Flood
from bench.floor import Floor
from bench.memory import Peaks
from bench.service import Service, free_port, running
from bench.table import Row, Step, Table
from turnout.access import Key

FLOODER, INNOCENT = "flooder", "innocent"
MOST_TIMES = 5.0
MOST_MEGABYTES = 150.0
CALLS = ("healthz", "create", "describe")
_PAUSE = 0.05
"""Seconds between two rounds of calls, so that the ordinary project does not cause a flood itself."""


class _Round(NamedTuple):
    """The results of a flood at the sink, or at the service."""

    milliseconds: dict[str, float]
    peaks: Peaks


def bodies(table: Table, directory: Path, floor: Floor) -> None:
    for name, make in (("bodies", flood_requests.bodies), ("bodies with keys", flood_requests.known_bodies)):
        _flood(table, directory / name.replace(" ", "-"), name, make)


def logs(table: Table, directory: Path, floor: Floor) -> None:
    _flood(table, directory / "logs", "logs", flood_requests.logs, flood_requests.LOG_SETTINGS)


def metrics(table: Table, directory: Path, floor: Floor) -> None:
    _flood(table, directory / "metrics", "metrics", flood_requests.metrics)


def filters(table: Table, directory: Path, floor: Floor) -> None:
    _flood(table, directory / "filters", "filters", flood_requests.filters)


def searches(table: Table, directory: Path, floor: Floor) -> None:
    _flood(table, directory / "searches", "searches", flood_requests.searches)


def _flood(
    table: Table,
    directory: Path,
    name: str,
    make: Callable[[Service, Key, bool], Flood],
    settings: str = "",
) -> None:
    directory.mkdir()
    rounds = 100 if table.quick else 400
    step = table.steps(f"flood {name}", 2)
    with running(directory / "service", settings=settings) as service:
        flooder, innocent = (flood_requests.new_key(service, project) for project in (FLOODER, INNOCENT))
        asking = _Asking(service, innocent, rounds, step)
        aside = asking.during(make(service, flooder, True), directory / "aside", aside=True)
        flood = make(service, flooder, False)
        direct = asking.during(flood, directory / "direct", aside=False)
    for call in CALLS:
        what = f"p99 of {call} while others send {flood.what}"
        ours, sink = direct.milliseconds[call], aside.milliseconds[call]
        table.add(Row(f"flood {name} {call}", what, ours, "ms", sink, target=MOST_TIMES))
    _add_memory(table, name, direct.peaks)


def _add_memory(table: Table, name: str, peaks: Peaks) -> None:
    """Search processes have a separate limit, `[limits] search_processes` and `search_memory`."""
    what = f"peak memory ({name}), without search processes"
    detail = {"service": peaks.service / 1e6, "others": peaks.others / 1e6}
    total = sum(detail.values())
    table.add(
        Row(
            f"flood {name} memory",
            what,
            total,
            "MB",
            target=MOST_MEGABYTES,
            judged="measured",
            detail=detail,
        )
    )
    if peaks.searches:
        table.add(
            Row(
                f"flood {name} search processes",
                f"peak memory of search processes ({name})",
                peaks.searches / 1e6,
                "MB",
            )
        )


class _Asking:
    """An ordinary project, which makes a few calls now and then."""

    def __init__(self, service: Service, key: Key, rounds: int, step: Step) -> None:
        self._service = service
        self._key = key
        self._rounds = rounds
        self._step = step

    def during(self, flood: Flood, directory: Path, aside: bool) -> _Round:
        directory.mkdir()
        files = [directory / f"request-{number}" for number in range(len(flood.requests))]
        for file, request in zip(files, flood.requests, strict=True):
            file.write_bytes(request)
        assert self._service.process
        with _sink() as sink, memory.watching(self._service.process.pid) as watch:
            port = str(sink if aside else self._service.port)
            with _program("bench.sender", port, str(flood.connections), *map(str, files)):
                time.sleep(flood.warm_up)
                milliseconds = self._ask("aside" if aside else "direct")
                if flood.until_ended:
                    # What it prints is still being taken in.
                    self._service.line.ask(flood.until_ended)
        if flood.afterwards:
            self._service.line.ask(flood.afterwards)
        self._step()
        return _Round(milliseconds, watch.peaks)

    def _ask(self, prefix: str) -> dict[str, float]:
        requests = Requests(self._service.port, self._key)
        line = Line(self._service.port)
        times: dict[str, list[float]] = {call: [] for call in CALLS}
        for number in range(self._rounds):
            name = f"{prefix}-{number}"
            asked = {
                "healthz": requests.get("/healthz"),
                "create": requests.create(name, ("/bin/true",)),
                "describe": requests.describe(name),
            }
            for call, request in asked.items():
                before = time.perf_counter()
                line.ask(request)
                times[call].append((time.perf_counter() - before) * 1e3)
            time.sleep(_PAUSE)
        line.close()
        return {call: statistics.quantiles(found, n=100)[98] for call, found in times.items()}


@contextmanager
def _sink() -> Generator[int]:
    port = free_port()
    with _program("bench.sender", str(port)):
        yield port


@contextmanager
def _program(module: str, *arguments: str) -> Generator[None]:
    program = subprocess.Popen([sys.executable, "-m", module, *arguments])
    try:
        yield
    finally:
        program.kill()
        program.wait()
