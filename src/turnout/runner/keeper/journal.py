"""What survives the keeper: one line of JSON for each thing that happened, appended by a plain write.

A write is in the kernel's hands when it returns, so killing the keeper loses nothing. Losing power may; then the
boot id differs, and nothing that had not ended can still be running.

On a full disk lines wait here, in order, and `catch_up` tries again. What they tell goes to the service meanwhile:
its own store is the one that counts.

Lines: {"boot": id} at each start of the keeper, {"claim": gang} before its first process is made,
{"started": [attempt, name, pid, start time, at, slot]}, {"stop": [attempt, names, cause, kill at]},
{"ended": [attempt, name, at, cause, code, signal, message]}, {"tomb": attempt}, {"forgotten": attempt},
{"pump": [attempt, name, pid, start time]} for what seals a log,
{"again": [attempt, name, restarts]} before one that has ended is started again: from then on that number is at the end
of its lines `started` and `ended`.
"""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from typing import Any

from .say import Outage, say

Line = dict[str, Any]

encode = json.JSONEncoder(separators=(",", ":")).encode


class Journal:
    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "journal")
        self._fd = self._open(self._path)
        self._lines = 0
        self._waiting = bytearray()
        self._outage = Outage("the journal cannot be written")

    @property
    def behind(self) -> bool:
        return bool(self._waiting)

    def read(self) -> Iterator[Any]:
        """All lines so far, whatever they hold.

        A torn last line (power was lost) is cut off, so that what follows stands alone.
        """
        whole = 0
        with open(self._path, "rb") as file:
            for raw in file:
                try:
                    line = json.loads(raw)
                except ValueError:
                    break
                if not raw.endswith(b"\n"):
                    break
                whole += len(raw)
                self._lines += 1
                yield line
        os.ftruncate(self._fd, whole)

    def append(self, *lines: Line) -> None:
        self.append_encoded([encode(line) for line in lines])

    def append_later(self, line: Line) -> None:
        """With the next that is appended: it is no loss if the keeper is killed before."""
        self._lines += 1
        self._waiting += (encode(line) + "\n").encode()

    def append_encoded(self, texts: list[str]) -> None:
        self._lines += len(texts)
        if texts:
            self._waiting += ("\n".join(texts) + "\n").encode()
            self.catch_up()

    def catch_up(self) -> None:
        """A write that fell short goes on where it ended, so that no line is torn for ever."""
        try:
            while self._waiting:
                del self._waiting[: os.write(self._fd, self._waiting)]
        except OSError as error:
            self._outage.failed(error)
            return
        self._outage.over()

    def worth_compacting(self, needed: int) -> bool:
        """Most of it tells of what was forgotten; `needed` lines would do."""
        return self._lines > 2000 and self._lines > 4 * needed

    def rewrite(self, lines: list[Line]) -> None:
        """`lines` are all that is needed, those that wait among them. Where there is no room the old ones stay."""
        fresh = self._path + ".new"
        data = "".join(encode(line) + "\n" for line in lines).encode()
        fd = -1
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)
            fd = self._open(fresh)
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.rename(fresh, self._path)
        except OSError as error:
            say(f"the journal cannot be made shorter: {error}")
            # Not with every line from now on: after as many more as have gathered.
            self._lines = 0
            if fd >= 0:
                os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            return
        os.close(self._fd)
        self._fd, self._lines = fd, len(lines)
        self._waiting.clear()

    @staticmethod
    def _open(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
