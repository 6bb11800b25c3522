"""The consumer of `bench.peers.huey`."""

import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from huey import SqliteHuey

LOOK_SECONDS = 0.005


def tasks(database: str) -> tuple[Any, Callable[..., Any]]:
    """The queue, and the function that puts a program into it."""
    queue = SqliteHuey(filename=database, fsync=True)

    @queue.task(name="run")
    def run(argv: Sequence[str], output: str) -> int:
        with open(output, "wb") as file:
            return subprocess.Popen(argv, stdout=file).wait()

    return queue, run


def main(database: str) -> None:
    queue, _ = tasks(database)
    queue.create_consumer(
        workers=2, initial_delay=LOOK_SECONDS, max_delay=LOOK_SECONDS, backoff=1, periodic=False
    ).run()
