"""A program that prints a lot, compared with the same program that writes to a file."""

import statistics
from pathlib import Path

from bench.floor import Floor
from bench.service import running
from bench.table import Row, Table

# It takes its own time, so that what a start costs is not counted.
PROGRAM = """\
import os, sys, time
lines = b"".join(b"step %07d loss 0.123456 accuracy 0.9876\\n" % n for n in range(1500))
left = int(sys.argv[1])
before = time.perf_counter()
while left > 0:
    left -= os.write(1, lines[:left])
os.write(2, b"%f" % (time.perf_counter() - before))
"""


def output(table: Table, directory: Path, floor: Floor) -> None:
    size, rounds = (100_000_000, 3) if table.quick else (1_000_000_000, 5)
    step = table.steps("output", rounds)
    program = ("/usr/bin/python3", "-c", PROGRAM, str(size))
    bare: list[float] = []
    ours: list[float] = []
    with running(directory / "service") as service:
        for number in range(rounds):
            bare.append(floor.time(program, "output"))
            _, job = service.run(f"output-{number}", program)
            ours.append(float(service.output(job, "stderr").read_text()))
            if service.output(job).stat().st_size != size:
                raise AssertionError("the log is not whole")
            service.line.ask(service.requests.delete(f"output-{number}"))
            step()
    table.add(
        Row(
            "output",
            f"a program that prints {size // 1_000_000} MB, to writing a file",
            statistics.median(ours),
            "s",
            statistics.median(bare),
            target=1.1,
        )
    )
