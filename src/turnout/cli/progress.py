"""A progress bar on a terminal, nothing elsewhere."""

import sys
import threading
from types import TracebackType
from typing import Any


class Progress:
    def __init__(self, enabled: bool = True) -> None:
        self._bar: Any = None
        self._begun = False
        self._lock = threading.Lock()
        self._total = 0
        self._files = 0
        if enabled and sys.stderr.isatty():
            self._bar, self._task = _bar()

    def __enter__(self) -> "Progress":
        return self

    def expect(self, size: int) -> None:
        """Adds a file of this many bytes. The first one shows the bar."""
        with self._lock:
            self._total += size
            self._files += 1
            begins, self._begun = not self._begun, True
        if self._bar:
            description = f"{self._files} files" if self._files > 1 else "1 file"
            self._bar.update(self._task, total=self._total, description=description)
            if begins:
                self._bar.start()

    def advance(self, size: int) -> None:
        """`size` is negative when a copy starts again."""
        if self._bar:
            self._bar.advance(self._task, size)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar and self._begun:
            self._bar.live.transient = error is not None  # the bar must not stay above the error
            self._bar.stop()


def _bar() -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar = Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True))
    return bar, bar.add_task("", total=None)
