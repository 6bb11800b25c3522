"""Sealed files with random access: chunks of 64 KiB, each bound to its number and to whether it is the last one.

Removed, moved or truncated chunks are detected.
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


class SealedWriter:
    """Seals a stream. The file is `begin`, then the results of `add`, then that of `finish`."""

    def __init__(self, key: "DataKey") -> None:
        salt = os.urandom(_SALT)
        self._cipher = key.for_file(salt, _PURPOSE)
        self.begin = key.header.encode() + salt
        self._held = bytearray()
        self._number = 0

    def add(self, data: bytes | bytearray | memoryview) -> bytes:
        self._held += data
        sealed: list[bytes] = []
        # The last chunk is marked, so one chunk is always held back.
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


class ChunkLayout(NamedTuple):
    """Where the chunks of a file begin, and the size of the data."""

    begin: int
    size: int


def read_layout(file: int, file_size: int) -> ChunkLayout | None:
    """The layout of an open file; None if it is not sealed. Needs no key."""
    found = read_header(os.pread(file, LONGEST, 0))
    if found is None:
        return None
    begin = found[1] + _SALT
    body = file_size - begin
    chunks = -(-body // (CHUNK + _TAG))
    size = body - chunks * _TAG
    return ChunkLayout(begin, size) if chunks > 0 and size >= 0 else None


class SealedReader:
    """Reads an open sealed file. The caller keeps and closes the descriptor."""

    def __init__(self, file: int, ring: KeyRing) -> None:
        """Raises KeyGone."""
        self._file = file
        found = read_layout(file, os.fstat(file).st_size)
        head = os.pread(file, found.begin, 0) if found else b""
        header = read_header(head)
        if found is None or header is None:
            raise KeyGone("the encrypted file is damaged and cannot be read")
        self._begin, self.size = found
        self._last = max(0, -(-self.size // CHUNK) - 1)
        self._cipher = ring.data_key(header[0]).for_file(head[header[1] :], _PURPOSE)

    def pread(self, count: int, offset: int) -> bytes:
        """Like `os.pread`. Raises KeyGone if the data was changed."""
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
            raise KeyGone("the encrypted file was changed and cannot be read") from None


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
