"""What a replica printed, as an engine keeps it: two streams of bytes, and marks that say when they grew."""

from typing import NamedTuple, Protocol


class Mark(NamedTuple):
    """When (ns) the streams had how many bytes. Marks of a replica are at least 1 ms apart."""

    at: int
    stdout: int
    stderr: int


class ReplicaLog(Protocol):
    """A replica's two streams and their marks. All calls block on the disk at most: call them in a thread."""

    def size(self, stream: int) -> int:
        """Bytes in stream 0 (stdout) or 1 (stderr) so far; 0 if there is none yet."""
        ...

    def read(self, stream: int, offset: int, count: int) -> bytes:
        """At most `count` bytes from `offset`; less at the end or before a hole."""
        ...

    def hole(self, stream: int) -> tuple[int, int] | None:
        """The part that was given up because the log grew beyond its limit."""
        ...

    def marks(self, first: int = 0, count: int | None = None) -> list[Mark]:
        """Marks from number `first` on."""
        ...

    def mark_count(self) -> int: ...
