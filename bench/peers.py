"""Other job queues, compared with the same floors. Neither keeps running jobs when it is killed."""

import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import clock
from bench.floor import Floor
from bench.table import Row, Table

TRUE = ("/bin/true",)
Start = Callable[[], float]
Rate = Callable[[int], float]


def task_spooler(table: Table, directory: Path, floor: Floor) -> None:
    """task-spooler: a command line and a daemon in C, with the queue in memory."""
    if shutil.which("tsp") is None:
        table.note("task-spooler is not installed: skipped")
        return
    home = directory / "task-spooler"
    home.mkdir()
    environment = os.environ | {"TS_SOCKET": str(home / "socket"), "TMPDIR": str(home), "TS_SLOTS": "2"}

    def tsp(*words: str) -> str:
        return subprocess.run(
            ["tsp", *words], env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    program = clock.DATE

    def start() -> float:
        before = time.time_ns()
        job = tsp(*program)
        tsp("-w", job)
        return (clock.read(Path(tsp("-o", job))) - before) / 1e9

    def rate(count: int) -> float:
        before = time.perf_counter()
        for _ in range(count - 1):
            tsp("-n", *TRUE)
        # With -n, which spares it a file for the output, it does not say the job's number.
        tsp("-w", tsp(*TRUE))
        return count / (time.perf_counter() - before)

    try:
        _beside(table, "task-spooler", "task-spooler", floor, program, start, rate)
    finally:
        tsp("-K")


def huey(table: Table, directory: Path, floor: Floor) -> None:
    """A task queue on SQLite, synchronous like Turnout's. Its two threads poll every 5 ms instead of every 100."""
    if importlib.util.find_spec("huey") is None:
        table.note("huey is not installed: skipped")
        return
    from bench.huey_worker import tasks

    database, result = directory / "huey.db", directory / "huey.out"
    queue, run = tasks(str(database))
    # Not by -m: tasks are known by their module's name, which would be __main__ there.
    consume = "import sys; from bench.huey_worker import main; main(sys.argv[1])"
    worker = subprocess.Popen(
        [sys.executable, "-c", consume, str(database)], cwd=Path(__file__).parent.parent
    )
    program = clock.DATE

    def start() -> float:
        before = time.time_ns()
        run(program, str(result))(blocking=True, timeout=30)
        return (clock.read(result) - before) / 1e9

    def rate(count: int) -> float:
        queue.storage.flush_results()
        before = time.perf_counter()
        for _ in range(count):
            run(TRUE, os.devnull)
        while queue.storage.result_store_size() < count:
            time.sleep(0.005)
        return count / (time.perf_counter() - before)

    try:
        _beside(table, "huey", "huey (SQLite, fsync)", floor, program, start, rate)
    finally:
        worker.terminate()
        worker.wait(20)


def _beside(
    table: Table, name: str, title: str, floor: Floor, program: tuple[str, ...], start: Start, rate: Rate
) -> None:
    times, bare_times, rates, bare_rates = [], [], [], []
    starts, count, rounds = (15, 200, 1) if table.quick else (50, 1000, 3)
    step = table.steps(name, starts + rounds)
    for _ in range(starts):
        bare_times.append(floor.start(program) * 1e3)
        times.append(start() * 1e3)
        step()
    for _ in range(rounds):
        bare_rates.append(floor.rate(TRUE, count))
        rates.append(rate(count))
        step()
    median = statistics.median
    table.add(Row(f"{name} start", f"{title}: first instruction", median(times), "ms", median(bare_times)))
    table.add(Row(f"{name} jobs", f"{title}: {count} jobs", median(rates), "/s", median(bare_rates)))
