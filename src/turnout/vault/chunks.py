"""Sealed files that are written once and read anywhere: chunks of 64 KiB, each with its number and whether it is the
last. None can be left out, moved or cut off unnoticed, and any part can be read without what comes before it.
"""

import os
from typing import TYPE_CHECKING, NamedTuple

from turnout.vault.header import LONGEST, read_header
from turnout.vault.ring import KeyGone, KeyRing

if TYPE_CHECKING:
    from turnout.vault.cipher import DataKey

CHUNK = 1 << 16
_TAG = 16
_SALT = 16
_PURPOSE = "object"


class Sealing:
    """Bytes in, sealed bytes out. What `begin`, `add` and `finish` return is the file, in that order."""

    def __init__(self, key: "DataKey") -> None:
        salt = os.urandom(_SALT)
        self._cipher = key.for_file(salt, _PURPOSE)
        self.begin = key.header.encode() + salt
        self._held = bytearray()
        self._number = 0

    def add(self, data: bytes | bytearray | memoryview) -> bytes:
        self._held += data
        sealed: list[bytes] = []
        # The last chunk is told from others only at the end, so one is always held back.
        while len(self._held) > CHUNK:
            sealed.append(self._chunk(bytes(self._held[:CHUNK]), last=False))
            del self._held[:CHUNK]
        return b"".join(sealed)

    def finish(self) -> bytes:
        return self._chunk(bytes(self._held), last=True)

    def _chunk(self, data: bytes, *, last: bool) -> bytes:
        nonce = _nonce(self._number, last)
        self._number += 1
        return self._cipher.encrypt(nonce, data, None)


class Shape(NamedTuple):
    """Where the chunks of a file begin, and how many bytes they hold."""

    begin: int
    size: int


def shape(file: int, file_size: int) -> Shape | None:
    """Of an open file; None if it is not a sealed one. Takes no key."""
    found = read_header(os.pread(file, LONGEST, 0))
    if found is None:
        return None
    begin = found[1] + _SALT
    body = file_size - begin
    chunks = -(-body // (CHUNK + _TAG))
    size = body - chunks * _TAG
    return Shape(begin, size) if chunks > 0 and size >= 0 else None


class Unsealed:
    """A sealed file that is open, read as if it were not sealed. The descriptor stays the caller's."""

    def __init__(self, file: int, ring: KeyRing) -> None:
        """Raises KeyGone."""
        self._file = file
        found = shape(file, os.fstat(file).st_size)
        head = os.pread(file, found.begin, 0) if found else b""
        header = read_header(head)
        if found is None or header is None:
            raise KeyGone("what is kept is damaged and cannot be read")
        self._begin, self.size = found
        self._last = max(0, -(-self.size // CHUNK) - 1)
        self._cipher = ring.data_key(header[0]).for_file(head[header[1] :], _PURPOSE)

    def pread(self, count: int, offset: int) -> bytes:
        """As `os.pread`. Raises KeyGone for what was changed."""
        end = min(offset + count, self.size)
        if offset >= end:
            return b""
        first, last = offset // CHUNK, (end - 1) // CHUNK
        pieces = [self._chunk(number) for number in range(first, last + 1)]
        begin = offset - first * CHUNK
        return b"".join(pieces)[begin : begin + end - offset]

    def _chunk(self, number: int) -> bytes:
        from cryptography.exceptions import InvalidTag

        sealed = os.pread(self._file, CHUNK + _TAG, self._begin + number * (CHUNK + _TAG))
        try:
            return self._cipher.decrypt(_nonce(number, number == self._last), sealed, None)
        except (InvalidTag, ValueError):
            raise KeyGone("what is kept was changed and cannot be read") from None


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
