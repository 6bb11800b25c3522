"""A replica's output as an engine stores it: two streams of bytes, and marks that record when they grew."""

from typing import NamedTuple, Protocol


class Mark(NamedTuple):
    """The sizes of both streams at a time (ns). Marks of a replica are at least 1 ms apart."""

    at: int
    stdout: int
    stderr: int


class ReplicaLog(Protocol):
    """A replica's two streams and their marks. All calls read from the disk: call them in a thread."""

    def size(self, stream: int) -> int:
        """The size of stream 0 (stdout) or 1 (stderr); 0 if it does not exist yet."""
        ...

    def read(self, stream: int, offset: int, count: int) -> bytes:
        """At most `count` bytes from `offset`; fewer at the end or before a hole."""
        ...

    def hole(self, stream: int) -> tuple[int, int] | None:
        """The part that was dropped because the log grew beyond its limit."""
        ...

    def marks(self, first: int = 0, count: int | None = None) -> list[Mark]:
        """Marks from number `first` on."""
        ...

    def mark_count(self) -> int: ...
