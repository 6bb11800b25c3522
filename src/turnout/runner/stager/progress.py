"""Counts the progress of an order."""

import threading

from turnout.runner.stager.messages import TransferProgress, TransferResult

_WARNINGS = 10


class WarningList:
    """The first warnings, and how many more there were."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._more = 0

    def add(self, text: str) -> None:
        if len(self._texts) < _WARNINGS:
            self._texts.append(text)
        else:
            self._more += 1

    @property
    def texts(self) -> list[str]:
        return self._texts + ([f"and {self._more} more"] if self._more else [])


class ProgressCounter:
    """`moved` and `finished` may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.files = 0
        self.bytes = 0
        self.of_bytes = 0
        self.waiting = 0
        self._kept = 0
        self._warnings = WarningList()

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
        self._warnings.add(text)

    def snapshot(self) -> TransferProgress:
        return TransferProgress(self.files, self.bytes + self._kept, self.of_bytes)

    def result(self) -> TransferResult:
        return TransferResult(self.files, self.bytes, self.waiting, self._warnings.texts)
