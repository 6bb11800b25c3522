"""The transfer log of a directory: a file with a line for each file that was transferred."""

import contextlib
import os
from pathlib import Path

import msgspec

_TIDY = 1000
"""The number of superseded lines at which the log is rewritten."""


class TransferredFile(msgspec.Struct, array_like=True):
    """The state of a file when it was identical to its object."""

    path: str
    size: int
    mtime: int
    """Nanoseconds since 1970."""
    etag: str


class Boot(msgspec.Struct):
    boot: str


_boot = msgspec.json.Decoder(Boot)
_moved = msgspec.json.Decoder(TransferredFile)


def this_boot() -> str:
    """The id of this boot. Files of an earlier boot cannot be trusted: after a power loss they may be incomplete."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class TransferLog:
    """Ignores unreadable lines; their files are transferred again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, TransferredFile] = {}
        self._boot = ""
        self._fd = -1
        if not path:
            return
        lines, torn = self._read()
        if torn or not self._boot or lines > len(self._known) + _TIDY:
            self._rewrite()
        self._open()

    def get(self, path: str) -> TransferredFile | None:
        return self._known.get(path)

    def add(self, moved: TransferredFile) -> None:
        if self._fd < 0:
            return
        self._known[moved.path] = moved
        os.write(self._fd, msgspec.json.encode(moved) + b"\n")

    def trust_this_boot_only(self) -> None:
        """Drop the entries of an earlier boot. Call it before files are written to the directory."""
        if self._fd < 0 or self._boot == this_boot():
            return
        self.close()
        self._known.clear()
        self._boot = this_boot()
        self._rewrite()
        self._open()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _read(self) -> tuple[int, bool]:
        """The number of lines, and whether the last one is incomplete."""
        try:
            content = Path(self._path).read_bytes()
        except FileNotFoundError:
            return 0, False
        head, *lines = content.split(b"\n")
        with contextlib.suppress(msgspec.DecodeError):
            self._boot = _boot.decode(head).boot
        for line in lines if self._boot else ():
            with contextlib.suppress(msgspec.DecodeError):
                moved = _moved.decode(line)
                self._known[moved.path] = moved
        return len(lines), not content.endswith(b"\n")

    def _rewrite(self) -> None:
        self._boot = self._boot or this_boot()
        new = f"{self._path}.new"
        lines = [msgspec.json.encode(Boot(self._boot)), *map(msgspec.json.encode, self._known.values())]
        with open(new, "wb") as file:
            file.write(b"\n".join(lines) + b"\n")
        os.rename(new, self._path)
