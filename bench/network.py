"""What a private network costs a job, compared with the machine's network."""

import statistics
from pathlib import Path

from bench import clock
from bench.floor import Floor
from bench.rates import run_jobs
from bench.service import running
from bench.starts import Starter, take_turns
from bench.table import Row, Table


def network(table: Table, directory: Path, floor: Floor) -> None:
    with (
        running(directory / "host", "bubblewrap", "host") as shared,
        running(directory / "private", "bubblewrap", "private") as own,
    ):
        times = take_turns(
            table,
            "network",
            {"host": Starter(shared, clock.DATE), "private": Starter(own, clock.DATE)},
        )
        more = times["private"] - times["host"]
        what = "a start in a network of its own, beyond one in the machine's"
        table.add(Row("network", what, more, "ms", target=1, judged="measured", detail=times))
        count, rounds = (200, 3) if table.quick else (500, 5)
        step = table.steps("network-jobs", rounds)
        rates: dict[str, list[float]] = {"host": [], "private": []}
        for number in range(rounds):
            # Each goes first in turn.
            for name, service in (("host", shared), ("private", own))[:: 1 if number % 2 else -1]:
                rates[name].append(run_jobs(service, f"round-{number}", count))
            step()
    table.add(
        Row(
            "network-jobs",
            f"{count} sandboxed jobs in networks of their own, to the machine's",
            statistics.median(rates["private"]),
            "/s",
            statistics.median(rates["host"]),
            target=0.7,
            better="more",
        )
    )
