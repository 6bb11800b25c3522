"""A shell beside a replica's program."""

from typing import NamedTuple, Protocol


class Size(NamedTuple):
    columns: int
    rows: int


class Terminal(Protocol):
    """The input and output of a shell, as bytes."""

    async def read(self) -> bytes:
        """Waits for output and returns it. Empty: the shell has ended."""
        ...

    async def write(self, data: bytes) -> None:
        """Waits until the shell has read earlier input."""
        ...

    def resize(self, size: Size) -> None: ...

    async def code(self) -> int | None:
        """The exit code after the end, 128 + n for signal n; None if unknown."""
        ...

    def close(self) -> None:
        """Hangs up the terminal, which ends the shell."""
        ...
