"""The journal: one line of JSON for each event, appended by a plain write. It survives the supervisor.

Once a write returns, the kernel has the data, so killing the supervisor loses nothing. A power failure may; then the
boot id differs, and no process can still be running.

On a full disk, lines wait in memory, in order, and `catch_up` retries. The service gets the events meanwhile, and its
store is the one that counts.

Lines:
{"boot": id, "place": [device, inode]}                    the supervisor started, in that directory
{"claim": gang}                                           before its first process is created
{"starting": [attempt, name], "pending": true}            just before a process is created; without it, it never ran.
                                                          `pending`: see `spares.PENDING`; older versions wrote none
{"started": [attempt, name, pid, start time, at, slot]}
{"stop": [attempt, names, cause, kill at], "by": the same by the steady clock, "in": boot}
{"ended": [attempt, name, at, cause, code, signal, message]}
{"trimmed": [attempt, name, at, message]}                 the log exceeded its limit
{"tomb": attempt}                                         stopped before it was launched
{"forgotten": attempt}
{"pump": [attempt, name, pid, start time]}                the process that encrypts a log
{"again": [attempt, name, restarts], "in": boot}          before a restart in place; from then on the number of the
                                                          start is the last item of `starting`, `started` and `ended`

The keys stay as they are, because supervisors of other versions read them too.

Each line ends with a checksum of what stands before it, `"c"`. Older versions wrote none. A damaged line is copied to
`journal.bad`, for people, and reading continues with the next line.
"""

import contextlib
import errno
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from ..diagnostics import Outage, log_message

Line = dict[str, Any]

encode = json.JSONEncoder(separators=(",", ":")).encode

_SUM = re.compile(rb',"c":"([0-9a-f]{8})"\}')
_SUM_BYTES = len(',"c":"01234567"}')
_MAX_BAD_BYTES = 1 << 20


class Journal:
    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "journal")
        self._fd = self._open(self._path)
        self._lines = 0
        self.bad: list[bytes] = []
        """Lines that `read` could not decode."""
        self._waiting = bytearray()
        self._outage = Outage("the journal cannot be written")

    @property
    def behind(self) -> bool:
        return bool(self._waiting)

    def read(self) -> Iterator[Any]:
        """All lines so far. Damaged ones are set aside.

        An incomplete last line (after a power failure) is cut off, so that the next line starts on its own.
        """
        valid, unfinished = 0, False
        with open(self._path, "rb") as file:
            for raw in file:
                ends = raw.endswith(b"\n")
                lines = _decode(raw, ends)
                if lines is None and not ends:
                    break
                valid, unfinished = valid + len(raw), not ends
                self._lines += 1
                if lines is None:
                    self.set_aside(raw)
                    lines = _salvage(raw)
                yield from lines
        os.ftruncate(self._fd, valid)
        if unfinished:
            self._waiting += b"\n"
            self.catch_up()

    def set_aside(self, raw: bytes) -> None:
        """Copies a line to a file beside the journal, up to a size, for people."""
        self.bad.append(raw)
        log_message(f"a damaged line of the journal is copied to {self._path}.bad: {raw[:200]!r}")
        with contextlib.suppress(OSError):
            fd = self._open(self._path + ".bad")
            try:
                if os.fstat(fd).st_size + len(raw) <= _MAX_BAD_BYTES:
                    os.write(fd, raw.rstrip(b"\n") + b"\n")
            finally:
                os.close(fd)

    def append(self, *lines: Line) -> None:
        self.append_encoded([encode(line) for line in lines])

    def append_or_raise(self, line: Line) -> None:
        """Like `append`, but raises OSError unless this line and all before it are written."""
        self.append(line)
        if self._waiting:
            raise OSError(errno.ENOSPC, "the supervisor's journal cannot be written, as its log says")

    def append_later(self, line: Line) -> None:
        """Writes the line together with the next one. It may be lost if the supervisor is killed before that."""
        self._lines += 1
        self._waiting += with_checksum(encode(line))

    def append_encoded(self, texts: list[str]) -> None:
        self._lines += len(texts)
        if texts:
            self._waiting += b"".join(map(with_checksum, texts))
            self.catch_up()

    def catch_up(self) -> None:
        """Writes what waits. After a partial write it continues where that ended, so no line stays incomplete."""
        try:
            while self._waiting:
                del self._waiting[: os.write(self._fd, self._waiting)]
        except OSError as error:
            self._outage.failed(error)
            return
        self._outage.recovered()

    def worth_compacting(self, needed: Callable[[], int]) -> bool:
        """Most lines are about forgotten gangs, and `needed()` lines would be enough; or somebody removed the file."""
        if os.fstat(self._fd).st_nlink == 0:
            return True
        return self._lines > 2000 and self._lines > 4 * needed()

    def rewrite(self, lines: list[Line]) -> None:
        """Replaces the journal by `lines`, which include those that wait. On a full disk the old journal stays."""
        new_path = self._path + ".new"
        data = b"".join(with_checksum(encode(line)) for line in lines)
        fd = -1
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new_path)
            fd = self._open(new_path)
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.rename(new_path, self._path)
        except OSError as error:
            log_message(f"the journal cannot be compacted: {error}")
            # Try again only after as many more lines.
            self._lines = 0
            if fd >= 0:
                os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(new_path)
            return
        os.close(self._fd)
        self._fd, self._lines = fd, len(lines)
        self._waiting.clear()

    @staticmethod
    def _open(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def with_checksum(text: str) -> bytes:
    """The line for an encoded object, with its checksum. It is still one object, which older versions can read."""
    raw = text.encode()
    return b'%s,"c":"%08x"}\n' % (raw[:-1], zlib.crc32(raw))


def _decode(raw: bytes, ends: bool) -> list[Any] | None:
    """The decoded line; None if it is damaged. Without a checksum it must at least have its end."""
    raw = raw.rstrip(b"\n")
    found = _SUM.fullmatch(raw, max(0, len(raw) - _SUM_BYTES))
    if found:
        raw = raw[:-_SUM_BYTES] + b"}"
    if (found and zlib.crc32(raw) != int(found[1], 16)) or not (found or ends):
        return None
    try:
        return [json.loads(raw)]
    except (ValueError, RecursionError):
        return None


def _salvage(raw: bytes) -> list[Any]:
    """Complete lines inside a damaged one, which lost the end of the line before it."""
    lines: list[Any] = []
    began = 0
    for found in _SUM.finditer(raw):
        piece = raw[began : found.end()]
        begins = (piece[match.start() :] for match in re.finditer(rb"\{", piece))
        lines += next((line for text in begins if (line := _decode(text, ends=False))), [])
        began = found.end()
    return lines
