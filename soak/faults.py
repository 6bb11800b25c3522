"""The faults: kills, pauses, a full disk, changes of the clock."""

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from soak.clock import Clock
from tests.running import Service, children_with, supervisor_pid

FULL = "disk full"


STAGER = "turnout.runner.stager"
SEARCH = "turnout.search.worker"


class Faults:
    def __init__(self, service: Service, clock: Clock, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.full: list[tuple[float, float]] = []
        """When the disk was full."""
        self.own: list[str] = []
        """Failures of the service that no fault caused."""
        self._soon: list[str] = []
        self._rounds = 0
        self._service = service
        self._clock = clock
        self._chance = random.Random(seed)
        self._all: dict[str, Callable[[], bool]] = {
            "service killed": self._kill_service,
            "service stopped and continued": lambda: self._pause([self._of_service()]),
            "supervisor killed": lambda: _kill(self._supervisor()),
            "supervisor stopped and continued": lambda: self._pause(self._supervisor()),
            "stager killed": lambda: _kill(self._children(STAGER)),
            "stager stopped and continued": lambda: self._pause(self._children(STAGER)),
            "search process killed": lambda: _kill(self._children(SEARCH)),
            "search process stopped and continued": lambda: self._pause(self._children(SEARCH)),
        }
        if os.path.ismount(service.data):
            self._all[FULL] = self._fill_disk
        if clock.env:
            self._all["clock changed"] = self._step_clock

    @property
    def kinds(self) -> list[str]:
        return list(self._all)

    def look(self) -> None:
        """Records if the service ended by itself, and starts it again."""
        process = self._service.process
        if process and process.poll() is not None:
            self.own.append(f"the service ended by itself with {process.returncode}: {self._last_words()}")
            self._service.start()

    def _last_words(self) -> str:
        return "\n".join(self._service.log.read_text(errors="replace").splitlines()[-30:])

    def next(self) -> None:
        """Each kind once, in random order, then all again; a full disk every third time, as it weakens the check."""
        if not self._soon:
            kinds = [kind for kind in self.kinds if kind != FULL or self._rounds % 3 == 0]
            self._soon = self._chance.sample(kinds, len(kinds))
            self._rounds += 1
        name = self._soon.pop()
        if self._all[name]():
            self.done[name] += 1

    def _kill_service(self) -> bool:
        self._service.kill()
        time.sleep(self._chance.random())
        self._service.start()
        return True

    def _pause(self, processes: list[psutil.Process]) -> bool:
        for one in processes:
            with contextlib.suppress(psutil.Error):
                one.suspend()
        time.sleep(self._chance.random() * 2)
        for one in processes:
            with contextlib.suppress(psutil.Error):
                one.resume()
        return bool(processes)

    def _of_service(self) -> psutil.Process:
        assert self._service.process
        return psutil.Process(self._service.process.pid)

    def _supervisor(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            if pid := supervisor_pid(self._service.data):
                return [psutil.Process(pid)]
        return []

    def _children(self, word: str) -> list[psutil.Process]:
        """Waits up to three seconds for them to appear."""
        assert self._service.process
        deadline = time.monotonic() + 3
        found: list[psutil.Process] = []
        while not found and time.monotonic() < deadline:
            with contextlib.suppress(psutil.Error):
                found = children_with(self._service.process.pid, word)
            time.sleep(0.02)
        return found

    def _fill_disk(self) -> bool:
        began = time.monotonic()
        ballast = self._service.data / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(b"x" * (1 << 20))
        time.sleep(1 + self._chance.random())
        ballast.unlink()
        self.full.append((began, time.monotonic()))
        return True

    def _step_clock(self) -> bool:
        self._clock.step(self._chance.choice((-40, -5, 0, 5, 40)))
        return True


def _kill(processes: list[psutil.Process]) -> bool:
    for one in processes:
        with contextlib.suppress(psutil.Error):
            one.kill()
    return bool(processes)


@contextlib.contextmanager
def small_disk(data: Path, megabytes: int = 512) -> Iterator[None]:
    """As root, mounts a small file system at the data directory: ext4 in a file, so that a sync is real."""
    data.mkdir(parents=True, exist_ok=True)
    mounted = os.geteuid() == 0 and _mount(data, megabytes)
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(data)], capture_output=True)


def _mount(data: Path, megabytes: int) -> bool:
    image = data.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    make = ["mkfs.ext4", "-q", "-F", "-m", "0", str(image)]
    for command in (make, ["mount", "-o", "loop", str(image), str(data)]):
        if not shutil.which(command[0]) or subprocess.run(command, capture_output=True).returncode:
            tmpfs = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0711", "soak", str(data)]
            return subprocess.run(tmpfs, capture_output=True).returncode == 0
    with contextlib.suppress(OSError):
        (data / "lost+found").rmdir()
    return True
