"""What survives the keeper: one line of JSON for each thing that happened, appended by a plain write.

A write is in the kernel's hands when it returns, so killing the keeper loses nothing. Losing power may; then the
boot id differs, and nothing that had not ended can still be running.

Lines: {"boot": id} at each start of the keeper, {"claim": gang} before its first process is made,
{"started": [attempt, name, pid, start time, at]}, {"stop": [attempt, names, cause, kill at]},
{"ended": [attempt, name, at, cause, code, signal, message]}, {"tomb": attempt}, {"forgotten": attempt}.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

Line = dict[str, Any]

encode = json.JSONEncoder(separators=(",", ":")).encode


class Journal:
    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "journal")
        self._fd = self._open(self._path)
        self._lines = 0

    def read(self) -> Iterator[Line]:
        """All lines so far. A torn last line (power was lost) is cut off, so that what follows stands alone."""
        whole = 0
        with open(self._path, "rb") as file:
            for raw in file:
                try:
                    line = json.loads(raw) if raw.endswith(b"\n") else None
                except ValueError:
                    line = None
                if line is None:
                    break
                whole += len(raw)
                self._lines += 1
                yield line
        os.ftruncate(self._fd, whole)

    def append(self, *lines: Line) -> None:
        self.append_encoded([encode(line) for line in lines])

    def append_encoded(self, texts: list[str]) -> None:
        self._lines += len(texts)
        data = ("\n".join(texts) + "\n").encode() if texts else b""
        # A short write happens on a full disk only; the rest is tried again so that no line is torn for ever.
        while data:
            data = data[os.write(self._fd, data) :]

    def worth_compacting(self, needed: int) -> bool:
        """Most of it tells of what was forgotten; `needed` lines would do."""
        return self._lines > 2000 and self._lines > 4 * needed

    def rewrite(self, lines: list[Line]) -> None:
        fresh = self._path + ".new"
        if os.path.exists(fresh):
            os.unlink(fresh)
        old, self._fd, self._lines = self._fd, self._open(fresh), 0
        self.append(*lines)
        os.rename(fresh, self._path)
        os.close(old)

    @staticmethod
    def _open(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
