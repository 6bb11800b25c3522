"""Measures the requests of other clients while one project floods the service."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.running import Service

ENOUGH = 40


class Asking:
    """Sends requests again and again, and records how long each took."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self.seconds: list[float] = []
        self.error: BaseException | None = None
        self._ask = ask
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                before = time.monotonic()
                self._ask()
                self.seconds.append(time.monotonic() - before)
                self._over.wait(0.02)
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
            self.error = error

    def __enter__(self) -> "Asking":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(120)
        if self.error:
            raise self.error


@contextlib.contextmanager
def nobody_waits(*asked: Callable[[], Any]) -> Iterator[Callable[[], bool]]:
    """Runs all of them during the block and checks that none was slow. Yields: were there enough to judge?"""
    before = time.monotonic()
    with contextlib.ExitStack() as stack:
        asking = [stack.enter_context(Asking(one)) for one in asked]
        yield lambda: all(len(one.seconds) >= ENOUGH or one.error for one in asking)
    took = time.monotonic() - before
    for one in asking:
        seconds = sorted(one.seconds)
        assert len(seconds) >= ENOUGH, f"{len(seconds)} answers in {took} s"
        late = seconds[int(0.95 * len(seconds))]
        assert late < took / 6, f"{late} s of {took} s"
        assert seconds[-1] < took / 3, f"{seconds[-1]} s of {took} s"


def all_at_once(*work: Callable[[], Any]) -> list[Any]:
    found: list[Any] = [None] * len(work)

    def do(number: int) -> None:
        try:
            found[number] = work[number]()
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            found[number] = error

    threads = [threading.Thread(target=do, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def peak_memory(service: Service) -> int:
    """In bytes, since `forget_peak`."""
    assert service.process
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) << 10


def forget_peak(service: Service) -> None:
    assert service.process
    Path(f"/proc/{service.process.pid}/clear_refs").write_text("5")
