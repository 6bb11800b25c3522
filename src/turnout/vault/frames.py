"""Sealed logs: a file of frames, each sealed with its number, and an index of their ends.

The index begins with the range that was dropped because the log grew too long (from, until; both 0: none). Then it has,
for each frame, its end in the log and its end in the file. A frame is valid once its entry in the index is written.

Another writer may continue a log after its writer was killed, perhaps after a frame without an entry. A nonce is
therefore the number of the frame with a random prefix for each writer, so that none is used twice.
"""

import ctypes
import os
import stat
import struct
from bisect import bisect_right
from typing import TYPE_CHECKING

from turnout.vault.header import LONGEST, read_header
from turnout.vault.ring import KeyRing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from turnout.vault.cipher import DataKey

SEALED, FRAMES = ".sealed", ".frames"

_PAIR = struct.Struct("<QQ")
_SALT = 16
_NONCE, _WRITER = 12, 4
_TAG = 16
_HEAD = 1 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_PURPOSE = "log"
_APPEND = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class FrameWriter:
    """Writes one log, or continues an existing one. If the process is killed, only data that was not `put` is lost."""

    def __init__(self, path: str, key: "DataKey", limit: int) -> None:
        """Raises OSError."""
        self._limit = max(limit, 2 * _HEAD)
        self._file = os.open(path + SEALED, _APPEND, 0o640)
        self._index = os.open(path + FRAMES, _APPEND, 0o640)
        self._count = _count(self._index)
        begin = key.header.encode()
        salt = os.pread(self._file, _SALT, len(begin)) if self._count else os.urandom(_SALT)
        self._begin = begin + salt
        self._cipher = key.for_file(salt, _PURPOSE)
        self._writer = os.urandom(_WRITER)
        self.size, self._end = (0, len(self._begin))
        if self._count:
            self.size, self._end = _Ends(self._index, self._count)[self._count - 1]
        self._kept_from = 0
        self._sealed = b""
        self.waiting = 0
        """How many bytes the last call of `put` could not write."""

    def put(self, data: bytes) -> None:
        """On OSError the sealed frame is kept, and the next call writes it in place of its own data.

        It is not sealed again, because no two frames may have the same number.
        """
        if not self.waiting:
            if not data:
                return
            nonce = self._writer + self._count.to_bytes(_NONCE - _WRITER, "big")
            self._sealed = nonce + self._cipher.encrypt(nonce, data, None)
            self.waiting = len(data)
        if not self._count:
            _write_all(self._file, self._begin, 0)
            _write_all(self._index, _PAIR.pack(0, 0), 0)
        _write_all(self._file, self._sealed, self._end)
        size, end = self.size + self.waiting, self._end + len(self._sealed)
        _write_all(self._index, _PAIR.pack(size, end), (self._count + 1) * _PAIR.size)
        self.size, self._end, self._count = size, end, self._count + 1
        self._sealed, self.waiting = b"", 0

    def trim(self) -> bool:
        """Beyond the limit, keep about the first MiB and the last half of the limit. True if data was dropped."""
        if self.size - self._kept_from <= self._limit - _HEAD:
            return False
        ends = _Ends(self._index, self._count)
        first = ends.covering(_HEAD)
        last = ends.covering(self.size - self._limit // 2)
        self._kept_from = self.size - self._limit // 2
        if last <= first + 1:
            return False
        (begin, file_begin), (end, file_end) = ends[first], ends[last - 1]
        _write_all(self._index, _PAIR.pack(begin, end), 0)
        mode = _PUNCH_HOLE | _KEEP_SIZE
        _libc.fallocate(self._file, mode, file_begin, file_end - file_begin)
        return True

    def close(self) -> None:
        os.close(self._file)
        os.close(self._index)


class FrameReader:
    """Reads a sealed log. A file that is missing or invalid counts as an empty log."""

    def __init__(self, path: str, ring: KeyRing) -> None:
        self._path = path
        self._ring = ring

    def size(self) -> int:
        with _Opened(self._path + FRAMES) as index:
            ends = index.ends()
            return ends[len(ends) - 1][0] if len(ends) else 0

    def hole(self) -> tuple[int, int] | None:
        with _Opened(self._path + FRAMES) as index:
            return index.hole()

    def read(self, offset: int, count: int) -> bytes:
        """At most `count` bytes; fewer at the end or before the hole. Raises KeyGone."""
        with _Opened(self._path + FRAMES) as index, _Opened(self._path + SEALED) as file:
            ends, hole = index.ends(), index.hole()
            stop = offset + count
            if hole and offset < hole[1]:
                stop = min(stop, hole[0])
            if file.fd < 0 or not len(ends) or offset >= stop:
                return b""
            cipher = self._cipher(file.fd)
            return _read(file.fd, cipher, ends, offset, stop) if cipher else b""

    def _cipher(self, file: int) -> "AESGCM | None":
        head = os.pread(file, LONGEST, 0)
        found = read_header(head)
        if found is None:
            return None
        header, end = found
        return self._ring.data_key(header).for_file(head[end : end + _SALT], _PURPOSE)


def _read(file: int, cipher: "AESGCM", ends: "_Ends", offset: int, stop: int) -> bytes:
    from cryptography.exceptions import InvalidTag

    pieces: list[bytes] = []
    number = ends.covering(offset + 1)
    while number < len(ends) and offset < stop:
        end, file_end = ends[number]
        begin, file_begin = ends[number - 1] if number else (0, file_end - (_NONCE + end + _TAG))
        sealed = os.pread(file, max(0, file_end - file_begin), max(0, file_begin))
        try:
            if int.from_bytes(sealed[_WRITER:_NONCE], "big") != number:
                break
            data = cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], None)
        except (InvalidTag, ValueError):
            break  # it was truncated by a power loss or tampered with: the log ends before it
        pieces.append(data[offset - begin : stop - begin])
        offset, number = end, number + 1
    return b"".join(pieces)


class _Ends:
    """(end in the log, end in the file) of each frame."""

    def __init__(self, index: int, count: int) -> None:
        self._index = index
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> tuple[int, int]:
        if number >= self._count:
            raise IndexError(number)
        data = os.pread(self._index, _PAIR.size, (number + 1) * _PAIR.size)
        return _PAIR.unpack(data) if len(data) == _PAIR.size else (0, 0)

    def covering(self, size: int) -> int:
        """The first frame that ends at `size` or later in the log; the number of frames if there is none."""
        return bisect_right(range(self._count), size - 1, key=lambda number: self[number][0])


class _Opened:
    """Opens a regular file. `fd` is -1 if there is none."""

    def __init__(self, path: str) -> None:
        self.fd = -1
        try:
            self.fd = os.open(path, _READ)
            regular = stat.S_ISREG(os.fstat(self.fd).st_mode)
        except OSError:
            return
        if not regular:
            os.close(self.fd)
            self.fd = -1

    def ends(self) -> _Ends:
        return _Ends(self.fd, _count(self.fd) if self.fd >= 0 else 0)

    def hole(self) -> tuple[int, int] | None:
        data = os.pread(self.fd, _PAIR.size, 0) if self.fd >= 0 else b""
        if len(data) < _PAIR.size:
            return None
        begin, end = _PAIR.unpack(data)
        return (begin, end) if end else None

    def __enter__(self) -> "_Opened":
        return self

    def __exit__(self, *_: object) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def _count(index: int) -> int:
    return max(0, os.fstat(index).st_size // _PAIR.size - 1)


def _write_all(file: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, offset)
        rest, offset = rest[written:], offset + written
