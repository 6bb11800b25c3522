"""Checksums of objects, also of pieces that arrive out of order."""

import base64
import hashlib
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer

CRC = "turnout-crc32c"
"""The metadata key under which uploads store the CRC32C, in hexadecimal. The ETag of a big object is not a checksum,
and MD5 would take more time than the transfer."""

_MD5 = re.compile(r"[0-9a-f]{32}")
_BASE64_MD5 = re.compile(r"[0-9A-Za-z+/]{22}==")
_READ = 1 << 20
_POLYNOMIAL = 0x82F63B78
"""The polynomial of CRC32C, bits reversed."""


class Expected(NamedTuple):
    kind: str
    """crc32c, md5, or empty if the checksum is unknown."""
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
    """The ETag without quotes, which some stores add."""
    return (etag or "").strip('"')


def digest(kind: str, data: "Buffer") -> str:
    running = _begin(kind)
    running.update(data)
    return running.hexdigest()


def file_digest(kind: str, fd: int, size: int) -> str:
    """The digest of a file's first `size` bytes."""
    running, at = _begin(kind), 0
    while at < size and (data := os.pread(fd, min(_READ, size - at), at)):
        running.update(data)
        at += len(data)
    return running.hexdigest()


class Crcs:
    """CRC32C of a file whose pieces arrive in any order. All pieces but the last have the same length."""

    def __init__(self, piece: int) -> None:
        self._piece = piece
        self._known: dict[int, int] = {}
        """By the number of the piece."""

    def begin(self, number: int) -> None:
        self._known[number] = 0

    def add(self, number: int, data: bytes) -> None:
        """The bytes of one piece must be added in order."""
        self._known[number] = google_crc32c.extend(self._known[number], data)

    def value(self, fd: int, size: int) -> str:
        """The CRC32C of the whole file. Pieces that were not added are read from the file."""
        whole, operator = 0, _zeros(self._piece)
        for number in range(-(-size // self._piece)):
            start = number * self._piece
            length = min(self._piece, size - start)
            crc = self._known.get(number)
            if crc is None:
                crc = google_crc32c.value(os.pread(fd, length, start))
            if length != self._piece:
                operator = _zeros(length)
            whole = _apply(operator, whole) ^ crc
        return f"{whole:08x}"


def _zeros(length: int) -> list[int]:
    """The effect of `length` zero bytes on a CRC: a matrix over GF(2), one column per bit."""
    # The matrix of one zero bit, squared three times, is that of a byte; then square and multiply by `length`.
    power = [_POLYNOMIAL, *(1 << bit for bit in range(31))]
    for _ in range(3):
        power = [_apply(power, column) for column in power]
    result = [1 << bit for bit in range(32)]
    while length:
        if length & 1:
            result = [_apply(power, column) for column in result]
        power = [_apply(power, column) for column in power]
        length >>= 1
    return result


def _apply(matrix: list[int], vector: int) -> int:
    result = 0
    for column in matrix:
        if not vector:
            break
        if vector & 1:
            result ^= column
        vector >>= 1
    return result


class _Crc32c:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: "Buffer") -> None:
        """The library accepts only `bytes`; other buffers are copied in pieces."""
        if isinstance(data, bytes):
            self._value = google_crc32c.extend(self._value, data)
            return
        view = memoryview(data)
        for start in range(0, len(view), _READ):
            self._value = google_crc32c.extend(self._value, bytes(view[start : start + _READ]))

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def _begin(kind: str) -> "_Crc32c | hashlib._Hash":
    return _Crc32c() if kind == "crc32c" else hashlib.md5(usedforsecurity=False)
