"""Reads an object of a remote store in pieces, as the caller takes them: what it does not take stays in the store."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from turnout.errors import TurnoutError
from turnout.storage.remote.failures import explained
from turnout.storage.streams import PIECE

if TYPE_CHECKING:
    from turnout.storage.remote.store import ObjectStore


class RemoteReader:
    """Its `pread` is like os.pread. It continues the answer of the store as long as the caller reads on."""

    def __init__(self, store: "ObjectStore", url: str, key: str, etag: str | None, size: int) -> None:
        """`etag`: as the store spells it. `size`: the object's."""
        self._store, self._url, self._key, self._etag = store, url, key, etag
        self._size = size
        self._pieces: Iterator[Any] = iter(())
        self._rest = memoryview(b"")
        self._at = -1

    def use(self, result: Any) -> None:
        """Begins with the answer to a request that was made already."""
        self._at, self._rest = result.range[0], memoryview(b"")
        self._pieces = iter(result.stream(min_chunk_size=PIECE))

    def pread(self, size: int, at: int) -> bytes:
        """May return fewer bytes, and none at the end. Blocks."""
        if at >= self._size:
            return b""
        with explained(self._url, self._key):
            if at != self._at:
                self._open(at)
            piece = self._next(at)
        found = bytes(piece[:size])
        self._rest = piece[size:]
        self._at += len(found)
        return found

    def _next(self, at: int) -> memoryview:
        if self._rest:
            return self._rest
        try:
            return memoryview(next(self._pieces))
        except Exception:  # noqa: BLE001 (it was a part, it broke, or it was idle for too long: a second one says why)
            self._open(at)
        for piece in self._pieces:
            return memoryview(piece)
        raise TurnoutError(f"{self._url}/{self._key} became shorter while it was read")

    def _open(self, at: int) -> None:
        options: Any = {"range": (at, self._size)}
        if self._etag:
            options["if_match"] = self._etag
        self._at = -1
        self.use(self._store.get(self._key, options=options))
