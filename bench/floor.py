"""What the machine does without us: programs started by a bare `subprocess.Popen`.

They are started by a process of its own that runs as the jobs' user, because a sandbox costs root less.
"""

import multiprocessing
import os
import pwd
import subprocess
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench import clock

WIDE = 2


class Floor:
    def __init__(self, pipe: Connection, directory: Path) -> None:
        self._pipe = pipe
        self._directory = directory

    def start(self, argv: Sequence[str]) -> float:
        """Seconds from the call until the program says so; it prints the time."""
        return self._ask(start, list(argv), self._directory)

    def rate(self, argv: Sequence[str], count: int) -> float:
        """Programs a second, two at a time."""
        return self._ask(rate, list(argv), count)

    def time(self, argv: Sequence[str], output: str) -> float:
        """Seconds that the program says it took, its output in a plain file; it prints them on stderr."""
        return self._ask(time_writing, list(argv), self._directory / output)

    def _ask(self, function: Callable[..., float], *arguments: Any) -> float:
        self._pipe.send((function, arguments))
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def floor(directory: Path, user: str) -> Generator[Floor]:
    """`user`: whom jobs run as, if that is somebody else."""
    directory.mkdir()
    if user:
        who = pwd.getpwnam(user)
        os.chown(directory, who.pw_uid, who.pw_gid)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(there, user), daemon=True)
    process.start()
    there.close()
    try:
        yield Floor(here, directory)
    finally:
        here.close()
        process.join(5)


def start(argv: list[str], directory: Path) -> float:
    output = directory / "clock.out"
    with output.open("wb") as file:
        before = time.time_ns()
        process = subprocess.Popen(argv, stdout=file, stderr=subprocess.DEVNULL)
    process.wait()
    return (clock.read(output) - before) / 1e9


def rate(argv: list[str], count: int) -> float:
    running: deque[subprocess.Popen[bytes]] = deque()
    before = time.perf_counter()
    for _ in range(count):
        if len(running) == WIDE:
            running.popleft().wait()
        running.append(subprocess.Popen(argv))
    for process in running:
        process.wait()
    return count / (time.perf_counter() - before)


def time_writing(argv: list[str], output: Path) -> float:
    with output.open("wb") as file:
        done = subprocess.run(argv, stdout=file, stderr=subprocess.PIPE, check=True)
    output.unlink()
    return float(done.stderr)


def _serve(pipe: Connection, user: str) -> None:
    if user:
        who = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(who.pw_gid)
        os.setuid(who.pw_uid)
        os.chdir("/")
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(function(*arguments))
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            pipe.send(error)
