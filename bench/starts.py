"""The time from the request to the start of the program, and from its end to the answer of a waiting client."""

import itertools
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from bench import clock, sandbox
from bench.floor import Floor
from bench.service import Service, running
from bench.table import Row, Table

WARM_UP = 20
MS = 1e3
PAUSE = 0.02
"""Seconds without another request, which would slow down the start that is being measured. Sandboxes take longest."""


def start(table: Table, directory: Path, floor: Floor) -> None:
    """Also measures a program without a loader, which shows the cost of the start alone."""
    bare = clock.install(directory)
    with running(directory / "service") as service:
        times = take_turns(
            table,
            "start",
            {
                "floor": lambda: floor.start(clock.DATE),
                "ours": Starter(service, clock.DATE),
                "bare floor": lambda: floor.start(bare),
                "bare": Starter(service, bare),
            },
        )
    what = "signed durable CreateJob → the program's first instruction"
    table.add(Row("start", what, times["ours"], "ms", times["floor"], target=3))
    what = "the same, a program of 13 instructions"
    table.add(Row("start-bare", what, times["bare"], "ms", times["bare floor"]))


def limited(table: Table, directory: Path, floor: Floor) -> None:
    with running(directory / "service") as service:
        times = take_turns(
            table,
            "limited",
            {
                "floor": lambda: floor.start(clock.DATE),
                "ours": Starter(service, clock.DATE, "1U1G0P"),
            },
        )
    what = "the same with a CPU and memory limit (1U1G0P)"
    table.add(Row("limited", what, times["ours"], "ms", times["floor"], target=4))


def sandboxed(table: Table, directory: Path, floor: Floor) -> None:
    """The floor is a start without a sandbox, plus what bwrap adds to a bare start."""
    program = clock.DATE
    bare_sandbox = sandbox.command(directory / "bwrap", program)
    with (
        running(directory / "bare") as bare,
        running(directory / "sandboxed", sandbox="bubblewrap") as boxed,
    ):
        times = take_turns(
            table,
            "sandbox",
            {
                "popen": lambda: floor.start(program),
                "bwrap": lambda: floor.start(bare_sandbox, sandbox.files()),
                "without": Starter(bare, program),
                "within": Starter(boxed, program),
            },
        )
    expected = times["without"] + times["bwrap"] - times["popen"]
    table.add(
        Row(
            "sandbox",
            "the same in the sandbox, to without + bwrap's own cost",
            times["within"],
            "ms",
            expected,
            target=1,
            detail=times,
        )
    )


def mounted(table: Table, directory: Path, floor: Floor) -> None:
    """An embedded bucket of 10 GB is bound, so its size must not matter."""
    program, mounts = clock.DATE, ("cos://bench-1250000000.cos.ap-beijing.myqcloud.com/in:/data",)
    for kind in ("none", "bubblewrap"):
        with (
            running(directory / f"without-{kind}", sandbox=kind) as without,
            running(directory / f"with-{kind}", sandbox=kind) as within,
        ):
            within.line.ask(within.requests.put("cos://bench/in/large"))
            os.truncate(within.paths.buckets / "bench" / "in" / "large", 10 << 30)
            within.run("first", program, mounts=mounts)
            times = take_turns(
                table,
                f"mounted, {kind}",
                {"without": Starter(without, program), "with": Starter(within, program, mounts=mounts)},
            )
        where = "no sandbox" if kind == "none" else "sandbox"
        what = f"start with an embedded 10 GB mount, beyond none ({where})"
        beyond = times["with"] - times["without"]
        table.add(Row("mounted", what, beyond, "ms", target=5, judged="measured", detail=times))


def end(table: Table, directory: Path, floor: Floor) -> None:
    """The client waits in a long poll. The program prints the time just before it exits."""
    count = 20 if table.quick else 100
    step = table.steps("end", count)
    late: list[float] = []
    with running(directory / "service") as service:
        for number in range(count):
            _, job = service.run(f"end-{number}", ("/bin/sh", "-c", "sleep 0.05; exec /bin/date +%s%N"))
            known = time.time_ns()
            late.append((known - clock.read(service.output(job))) / 1e6)
            step()
    table.add(
        Row(
            "end",
            "end of the program → a waiting client has the answer",
            statistics.median(late),
            "ms",
            target=5,
            judged="measured",
            detail={"largest": max(late)},
        )
    )


class Starter:
    """Seconds from the request until the time that the program prints."""

    def __init__(
        self,
        service: Service,
        program: tuple[str, ...],
        machine: str = "0U0G0P",
        mounts: tuple[str, ...] = (),
    ) -> None:
        self._mounts = mounts
        self._service = service
        self._program = program
        self._machine = machine
        self._names = (f"{Path(program[0]).name}-{number}" for number in itertools.count())

    def __call__(self) -> float:
        before, job = self._service.run(next(self._names), self._program, self._machine, PAUSE, self._mounts)
        return (clock.read(self._service.output(job)) - before) / 1e9


def take_turns(table: Table, what: str, sides: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each side, in milliseconds."""
    count = 50 if table.quick else 300
    step = table.steps(what, count + WARM_UP)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(count + WARM_UP):
        for name, measure in sides.items():
            seconds = measure()
            if number >= WARM_UP:
                times[name].append(seconds * MS)
        step()
    return {name: statistics.median(found) for name, found in times.items()}
