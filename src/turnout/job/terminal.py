"""A shell beside a replica's program, as whoever opened it sees it."""

from typing import NamedTuple, Protocol


class Size(NamedTuple):
    columns: int
    rows: int


class Terminal(Protocol):
    """What is typed goes in, what is to be shown comes out, both as bytes."""

    async def read(self) -> bytes:
        """What has come since the last time, once there is something. Empty: the shell has ended."""
        ...

    async def write(self, data: bytes) -> None:
        """Waits while the program does not read."""
        ...

    def resize(self, size: Size) -> None: ...

    async def code(self) -> int | None:
        """After the end: how it exited, 128 + n for signal n. None: nobody knows."""
        ...

    def close(self) -> None:
        """The shell is told that its terminal is gone, and ends by that."""
        ...
