"""Counts the progress of an order."""

import threading

from turnout.runner.stager.messages import TransferProgress, TransferResult

_WARNINGS = 10


class ProgressCounter:
    """`moved` and `finished` may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.files = 0
        self.bytes = 0
        self.of_bytes = 0
        self.waiting = 0
        self._kept = 0
        self._warnings: list[str] = []
        self._more = 0

    def found(self, size: int) -> None:
        self.of_bytes += size

    def kept(self, size: int) -> None:
        """The file was up to date."""
        self._kept += size

    def moved(self, size: int) -> None:
        with self._lock:
            self.bytes += size

    def finished(self) -> None:
        with self._lock:
            self.files += 1

    def warn(self, text: str) -> None:
        if len(self._warnings) < _WARNINGS:
            self._warnings.append(text)
        else:
            self._more += 1

    def snapshot(self) -> TransferProgress:
        return TransferProgress(self.files, self.bytes + self._kept, self.of_bytes)

    def result(self) -> TransferResult:
        more = [f"and {self._more} more"] if self._more else []
        return TransferResult(self.files, self.bytes, self.waiting, self._warnings + more)
