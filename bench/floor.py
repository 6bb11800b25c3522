"""What the machine does without Turnout: programs started by a bare `subprocess.Popen`.

A separate process that runs as the jobs' user starts them, because a sandbox is cheaper for root.
"""

import multiprocessing
import os
import pwd
import subprocess
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench import clock

WIDE = 2


class Floor:
    def __init__(self, pipe: Connection, directory: Path) -> None:
        self._pipe = pipe
        self._directory = directory

    def start(self, argv: Sequence[str], files: Mapping[int, bytes] = MappingProxyType({})) -> float:
        """Seconds from the call until the time that the program prints. `files`: what it reads, by descriptor."""
        return self._ask(start, list(argv), self._directory, dict(files))

    def rate(self, argv: Sequence[str], count: int) -> float:
        """Programs per second, two at a time."""
        return self._ask(rate, list(argv), count)

    def time(self, argv: Sequence[str], output: str) -> float:
        """Seconds that the program took, which it prints on stderr; its output goes to a plain file."""
        return self._ask(time_writing, list(argv), self._directory / output)

    def _ask(self, function: Callable[..., float], *arguments: Any) -> float:
        self._pipe.send((function, arguments))
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def floor(directory: Path, user: str) -> Generator[Floor]:
    """`user`: the user that jobs run as, if it is another one."""
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


def start(argv: list[str], directory: Path, files: dict[int, bytes]) -> float:
    output = directory / "clock.out"
    for number, content in files.items():
        memory = os.memfd_create("file")
        os.write(memory, content)
        os.lseek(memory, 0, os.SEEK_SET)
        if memory != number:
            os.dup2(memory, number)
            os.close(memory)
    with output.open("wb") as file:
        before = time.time_ns()
        process = subprocess.Popen(argv, stdout=file, stderr=subprocess.DEVNULL, pass_fds=tuple(files))
    process.wait()
    for number in files:
        os.close(number)
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
