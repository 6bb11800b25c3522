"""Rows that cannot be read: each is logged once and left out of results."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from turnout.errors import WrongState
from turnout.store.rows import Row

log = logging.getLogger(__name__)

_MOST_KNOWN = 1000

Read = TypeVar("Read")


class Unreadable(WrongState):
    """A stored row is damaged, or was written by a later version."""


class UnreadableRows:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        """The unreadable rows since the start, each with the reason."""
        self._file: Path | None = None

    def keep_in(self, file: Path) -> None:
        """Also writes a line for each row to this file, for people and for `turnout doctor`."""
        self._file = file
        for message in self.found.values():
            self._write(message)

    def note(self, name: str, error: Exception) -> str:
        """Logs the row. Returns a message such as `the spec of job 7 cannot be read: …`."""
        message = f"{name} cannot be read: {type(error).__name__}: {error}"
        if name not in self.found and len(self.found) < _MOST_KNOWN:
            self.found[name] = message
            log.error("%s; it is set aside", message)
            self._write(message)
        return message

    def read_rows(
        self, rows: Iterable[Row], read: Callable[[Row], Read], kind: str, columns: int = 1
    ) -> list[Read]:
        """The rows that can be read. The first `columns` columns identify a row."""
        found: list[Read] = []
        for row in rows:
            try:
                found.append(read(row))
            except Exception as error:  # noqa: BLE001 (one damaged row must not hide the others)
                self.note(f"{kind} {' '.join(map(str, row[:columns]))}", error)
        return found

    def _write(self, message: str) -> None:
        if self._file is None:
            return
        line = message.replace("\n", " ") + "\n"
        try:
            known = self._file.read_text() if self._file.exists() else ""
            if line not in known:
                self._file.touch(0o600)
                self._file.write_text(known + line)
        except (OSError, UnicodeDecodeError) as error:
            log.warning("%s cannot be written: %s", self._file, error)
