"""`mox.file.File`: an object as a file.

Reading fetches pieces of the object as they are needed. Any other mode works on a temporary file here, which is
uploaded by `flush` and `close`.
"""

from __future__ import annotations

import atexit
import io
import os
import tempfile
import weakref
from types import TracebackType
from typing import IO, Any, Iterator, List, Optional, Tuple, Type, cast

from . import _copies, _objects
from ._errors import MissingObject, MoxFileRespException, not_exists
from ._parallel import Parallel
from ._paths import Place, is_remote, place, text

_FIRST_PIECE = 1 << 18
_LARGEST_PIECE = 8 << 20


class File:
    """Like what `open` returns. `mode` may have its letters in any order, as in `br+`."""

    def __init__(self, name: Any, mode: str = "r", encoding: Optional[str] = None, **options: Any) -> None:
        """`options`: those of `open`, such as `newline` and `errors`. Raises OSError."""
        self.name = text(name)
        self.mode = mode
        self._target: Optional[Place] = None
        self._changed = False
        self._uploaded: Optional[Tuple[int, int]] = None
        self._process = os.getpid()
        letters = set(mode.replace("U", ""))
        kind = letters & set("rwax")
        if len(kind) != 1 or letters - set("rwaxbt+"):
            raise ValueError(f"invalid mode: {mode!r}")
        plain = f"{kind.pop()}{'+' if '+' in letters else ''}"
        binary = "b" in letters
        options.pop("buffering", None)
        if not binary:
            options["encoding"] = encoding or "utf-8"
        if not is_remote(self.name):
            self._file = cast(IO[Any], open(self.name, plain + ("b" if binary else ""), **options))  # noqa: SIM115 (`close` closes it)
            return
        where = place(self.name)
        if not where.key or where.key.endswith("/"):
            raise IsADirectoryError(21, "Is a directory", self.name)
        if plain == "r":
            pieces = io.BufferedReader(_Pieces(where, self.name), _FIRST_PIECE)
            self._file = cast(IO[Any], pieces if binary else io.TextIOWrapper(pieces, **options))
            return
        self._target = where
        self._file = cast(IO[Any], _temporary(where, self.name, plain, binary, options))
        if plain == "r+":
            self._uploaded = self._state()
        _unclosed.add(self)

    def size(self) -> int:
        here = self._file.tell()
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(here)
        return end

    def read(self, n: int = -1) -> Any:
        return self._file.read(n)

    def readline(self, size: int = -1) -> Any:
        return self._file.readline(size)

    def readlines(self, hint: int = -1) -> List[Any]:
        return self._file.readlines(hint)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: Any) -> int:
        self._changed = True
        return self._file.write(data)

    def writelines(self, lines: Any) -> None:
        self._changed = True
        self._file.writelines(lines)

    def truncate(self, size: Optional[int] = None) -> int:
        self._changed = True
        return self._file.truncate(size)

    def flush(self) -> None:
        self._file.flush()
        if not self._target or self._process != os.getpid():
            return  # what a forked process has is its parent's
        state = self._state()
        if self._changed or state != self._uploaded:
            self._changed, self._uploaded = False, state
            with Parallel(_copies.THREADS) as parallel:
                _copies.upload(parallel, cast(str, self._file.name), self._target.bucket, self._target.key)

    def _state(self) -> Tuple[int, int]:
        seen = os.stat(cast(str, self._file.name))
        return seen.st_mtime_ns, seen.st_size

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self.flush()
        finally:
            self._file.close()
            if self._target and self._process == os.getpid():
                os.unlink(cast(str, self._file.name))

    def __enter__(self) -> File:
        return self

    def __exit__(
        self,
        _kind: Optional[Type[BaseException]],
        _error: Optional[BaseException],
        _trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._file)

    def __getattr__(self, name: str) -> Any:
        if name == "_file":
            raise AttributeError(name)
        return getattr(self._file, name)

    def __del__(self) -> None:
        if "_file" in self.__dict__:
            self.close()


def _temporary(where: Place, url: str, mode: str, binary: bool, options: Any) -> IO[Any]:
    descriptor, path = tempfile.mkstemp(prefix="moxing-")
    os.close(descriptor)
    try:
        if mode[0] in "ra":
            found = _objects.head(where.bucket, where.key)
            if found:
                _copies.copy(url, path)
            elif mode[0] == "r":
                raise not_exists(url)
        elif mode[0] == "x":
            if _objects.head(where.bucket, where.key):
                raise FileExistsError(17, "File exists", url)
            mode = f"w{mode[1:]}"
        return cast(IO[Any], open(path, mode + ("b" if binary else ""), **options))
    except BaseException:
        os.unlink(path)
        raise


class _Pieces(io.RawIOBase):
    """Reads in one piece after the other, each larger than the last, as long as it goes forward."""

    def __init__(self, where: Place, url: str) -> None:
        super().__init__()
        self._where, self._url = where, url
        self._at = 0
        self._piece = memoryview(b"")
        self._piece_start = 0
        self._next_size = _FIRST_PIECE
        self._size, self._etag = 0, ""
        self._open()

    def _open(self) -> None:
        data = bytearray()
        try:
            reply = _objects.get(self._where.bucket, self._where.key, data.extend, 0, _FIRST_PIECE)
        except MissingObject:
            raise
        except MoxFileRespException as error:
            if error.resp.status != 416:  # an empty object has no ranges
                raise
            return
        self._etag = reply.headers.get("etag", "")
        self._size = int(reply.headers.get("content-range", f"/{len(data)}").rpartition("/")[2])
        self._piece = memoryview(bytes(data))
        self._next_size = 4 * _FIRST_PIECE

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"negative seek position {start + offset}")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._size:
            return 0
        ahead = self._at - self._piece_start
        if not 0 <= ahead < len(self._piece):
            self._fetch(ahead == len(self._piece), len(buffer))
            ahead = 0
        some = self._piece[ahead : ahead + len(buffer)]
        buffer[: len(some)] = some
        self._at += len(some)
        return len(some)

    def _fetch(self, goes_on: bool, wanted: int) -> None:
        size = max(self._next_size if goes_on else _FIRST_PIECE, min(wanted, _LARGEST_PIECE))
        size = min(size, self._size - self._at)
        data = bytearray()
        _objects.get(self._where.bucket, self._where.key, data.extend, self._at, size, self._etag)
        self._piece, self._piece_start = memoryview(bytes(data)), self._at
        self._next_size = min(2 * size, _LARGEST_PIECE)


_unclosed: "weakref.WeakSet[File]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """What a program has written is uploaded, even if it forgot to close the file."""
    for file in list(_unclosed):
        file.close()
