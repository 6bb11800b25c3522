"""From the request to the program's first instruction, and from its last one to whoever waits."""

import itertools
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
"""What we ask for next would be answered at the cost of the start that is being measured. Sandboxes take longest."""


def start(table: Table, directory: Path, floor: Floor) -> None:
    """Also with a program that has no loader: what is left is the cost of starting alone."""
    bare = clock.install(directory)
    with running(directory / "service") as service:
        times = _take_turns(
            table,
            "start",
            {
                "floor": lambda: floor.start(clock.DATE),
                "ours": Starter(service, clock.DATE),
                "bare floor": lambda: floor.start(bare),
                "bare": Starter(service, bare),
            },
        )
    what = "signed durable CreateJob → the program's first deed"
    table.add(Row("start", what, times["ours"], "ms", times["floor"], target=3))
    what = "the same, a program of 13 instructions"
    table.add(Row("start-bare", what, times["bare"], "ms", times["bare floor"]))


def limited(table: Table, directory: Path, floor: Floor) -> None:
    with running(directory / "service") as service:
        times = _take_turns(
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
    """The floor is what it takes us without a sandbox, and what bwrap takes on top of a bare start."""
    program = clock.DATE
    bare_sandbox = sandbox.command(directory / "bwrap", program)
    with (
        running(directory / "bare") as bare,
        running(directory / "sandboxed", sandbox="bubblewrap") as boxed,
    ):
        times = _take_turns(
            table,
            "sandbox",
            {
                "popen": lambda: floor.start(program),
                "bwrap": lambda: floor.start(bare_sandbox),
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
    """10 GB in an embedded bucket: it is bound, so its size must not matter."""
    program, mounts = clock.DATE, ("cos://bench-1250000000.cos.ap-beijing.myqcloud.com/in:/data",)
    for kind in ("none", "bubblewrap"):
        with (
            running(directory / f"without-{kind}", sandbox=kind) as without,
            running(directory / f"with-{kind}", sandbox=kind) as within,
        ):
            within.run("first", program, mounts=mounts)
            bucket = next(path for path in within.paths.buckets.glob("bench*"))
            with (bucket / "in" / "large").open("wb") as file:
                file.truncate(10 << 30)
            times = _take_turns(
                table,
                f"mounted, {kind}",
                {"without": Starter(without, program), "with": Starter(within, program, mounts=mounts)},
            )
        where = "no sandbox" if kind == "none" else "sandbox"
        what = f"start with an embedded 10 GB mount, beyond none ({where})"
        beyond = times["with"] - times["without"]
        table.add(Row("mounted", what, beyond, "ms", target=5, judged="measured", detail=times))


def end(table: Table, directory: Path, floor: Floor) -> None:
    """The client asked before the program ended, and is told; the program's last deed is to print the time."""
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
            "end of the program → a waiting client knows",
            statistics.median(late),
            "ms",
            target=5,
            judged="measured",
            detail={"largest": max(late)},
        )
    )


class Starter:
    """Seconds from the request until the program says that it runs."""

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


def _take_turns(table: Table, what: str, sides: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each side in milliseconds."""
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
