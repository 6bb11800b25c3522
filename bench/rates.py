"""Jobs and create calls per second."""

import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.client import CONNECTIONS, Line, Requests, flood
from bench.floor import Floor
from bench.service import Service, free_port, running
from bench.table import Row, Table

TRUE = ("/bin/true",)
ROUNDS = 5


def jobs(table: Table, directory: Path, floor: Floor) -> None:
    count, rounds = (200, 3) if table.quick else (1000, ROUNDS)
    step = table.steps("jobs", rounds)
    bare: list[float] = []
    ours: list[float] = []
    with running(directory / "service") as service:
        run_jobs(service, "warm-up", 50)
        for number in range(rounds):
            bare.append(floor.rate(TRUE, count))
            ours.append(run_jobs(service, f"round-{number}", count))
            step()
    table.add(
        Row(
            "jobs",
            f"{count} one-process jobs through the API, end to end",
            statistics.median(ours),
            "/s",
            statistics.median(bare),
            target=0.38,
            better="more",
        )
    )


def run_jobs(
    service: Service, prefix: str, count: int, argv: Sequence[str] = TRUE, machine: str = "0U0G0P"
) -> float:
    """Jobs per second, from the first request until the last job has ended."""
    requests = [service.requests.create(f"{prefix}-{number}", argv, machine) for number in range(count)]
    last = [
        service.requests.wait(f"{prefix}-{number}") for number in range(max(0, count - CONNECTIONS), count)
    ]
    before = time.perf_counter()
    flood(service.port, requests)
    flood(service.port, last)
    seconds = time.perf_counter() - before
    while late := _unfinished(service, count):
        # Jobs end out of order, so the last to be created need not be the last to end.
        for name in late:
            service.wait(name)
        seconds = time.perf_counter() - before
    return count / seconds


def creates(table: Table, directory: Path, floor: Floor) -> None:
    """No job starts meanwhile: one that is larger than the machine runs alone, and the others wait behind it."""
    count, rounds = (1000, 3) if table.quick else (4000, ROUNDS)
    step = table.steps("creates", rounds)
    bare: list[float] = []
    ours: list[float] = []
    with running(directory / "service") as service, _baseline(directory) as port:
        plain = Requests(port)
        service.line.ask(service.requests.create("blocker", ("/bin/sleep", "3600"), "1000U1000G0P"))
        service.wait("blocker", "started")
        for number in range(rounds):
            bare.append(_calls(port, plain, number, count))
            ours.append(_calls(service.port, service.requests, number, count))
            step()
        service.line.ask(service.requests.delete("blocker"))
    table.add(
        Row(
            "creates",
            f"durable CreateJob calls, {CONNECTIONS} connections, queue full",
            statistics.median(ours),
            "/s",
            statistics.median(bare),
            target=0.45,
            better="more",
        )
    )


def _calls(port: int, requests: Requests, round_number: int, count: int) -> float:
    made = [requests.create(f"call-{round_number}-{number}", TRUE) for number in range(count)]
    return count / flood(port, made)[0]


def _unfinished(service: Service, count: int) -> list[str]:
    """Of the newest jobs."""
    found: list[str] = []
    for offset in range(0, count, 100):
        answer = msgspec.json.decode(service.line.ask(service.requests.list(100, offset)))
        found += [job["Name"] for job in answer["Response"]["Jobs"] if job["State"] != "Succeeded"]
    return found


@contextmanager
def _baseline(directory: Path) -> Generator[int]:
    port = free_port()
    command = [sys.executable, "-m", "bench.baseline", str(port), str(directory / "baseline.db")]
    process = subprocess.Popen(command, cwd=Path(__file__).parent.parent)
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            Line(port).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise RuntimeError(f"the baseline ended with {process.returncode}")
