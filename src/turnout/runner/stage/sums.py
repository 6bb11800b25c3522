"""Whether what came is what the store has: checksums of bytes that may come out of order."""

import base64
import hashlib
import os
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer

CRC = "turnout-crc32c"
"""An object's metadata in which uploads say what they hold, in hexadecimal: an ETag does not tell for big ones, and
MD5 takes more time than the transfer."""

_MD5 = re.compile(r"[0-9a-f]{32}")
_BASE64_MD5 = re.compile(r"[0-9A-Za-z+/]{22}==")
_READ = 1 << 20


class Expected(NamedTuple):
    kind: str
    """crc32c, md5 or empty: nobody knows."""
    value: str


NOTHING = Expected("", "")


def expected(etag: str | None, attributes: Mapping[str, str]) -> Expected:
    """An ETag of 32 hexadecimal digits is an MD5 unless the store encrypts with a key of its own."""
    if found := attributes.get(CRC):
        return Expected("crc32c", found)
    etag = bare(etag)
    if _MD5.fullmatch(etag):
        return Expected("md5", etag)
    if _BASE64_MD5.fullmatch(etag):
        return Expected("md5", base64.b64decode(etag).hex())
    return NOTHING


def bare(etag: str | None) -> str:
    """Stores are not of one mind about the quotes."""
    return (etag or "").strip('"')


def digest(kind: str, data: "Buffer") -> str:
    running = _begin(kind)
    running.update(data)
    return running.hexdigest()


def crc_of(fd: int, size: int) -> str:
    """Of a file's first `size` bytes."""
    running = Running("crc32c", fd, size)
    running.catch_up(size)
    return running.value()


class Running:
    """The checksum of a file of which pieces come in any order; what was not just next is read back."""

    def __init__(self, kind: str, fd: int, size: int) -> None:
        self._sum = _begin(kind) if kind else None
        self._fd = fd
        self._size = size
        self._at = 0
        self._lock = threading.Lock()

    def add(self, offset: int, data: "Buffer") -> None:
        """After it was written. Only if its turn has come and nobody else is at it; otherwise it is read back later."""
        if self._sum is None or offset != self._at or not self._lock.acquire(blocking=False):
            return
        try:
            if offset == self._at:
                self._sum.update(data)
                self._at += len(memoryview(data))
        finally:
            self._lock.release()

    def catch_up(self, end: int) -> None:
        """To where everything is there."""
        if self._sum is None:
            return
        with self._lock:
            while self._at < end:
                data = os.pread(self._fd, min(_READ, end - self._at), self._at)
                if not data:
                    return
                self._sum.update(data)
                self._at += len(data)

    def value(self) -> str:
        return self._sum.hexdigest() if self._sum is not None else ""


class _Crc32c:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: "Buffer") -> None:
        """Piece by piece, because the library takes nothing but `bytes`."""
        view = memoryview(data)
        for start in range(0, len(view), _READ):
            self._value = google_crc32c.extend(self._value, bytes(view[start : start + _READ]))

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def _begin(kind: str) -> "_Crc32c | hashlib._Hash":
    return _Crc32c() if kind == "crc32c" else hashlib.md5(usedforsecurity=False)
