"""What a bucket can do, wherever it lies."""

from collections.abc import AsyncIterable, Callable
from typing import NamedTuple, Protocol

from turnout.storage.objects import Info, Page


class Opened(NamedTuple):
    info: Info
    start: int
    end: int
    """Exclusive."""
    body: AsyncIterable[bytes]
    close: Callable[[], None] = lambda: None
    """When it is done with, whether it was read to its end or not."""


class Shelf(Protocol):
    """Objects of one project in one bucket. Keys are checked where they are used."""

    async def info(self, key: str) -> Info: ...

    async def read(self, key: str, asked: str) -> Opened:
        """`asked`: a Range header, or nothing."""
        ...

    async def write(
        self, key: str, body: AsyncIterable[bytes], content_type: str, absent: bool, crc32c: str
    ) -> Info:
        """Whole or not at all. `absent`: raises AlreadyExists. `crc32c`, if given, is what must arrive."""
        ...

    async def delete(self, key: str) -> None: ...

    async def list(self, prefix: str, delimiter: str, after: str, limit: int) -> Page: ...
