"""The protocol of a bucket, whether it is embedded or in a remote store."""

from collections.abc import AsyncIterable, Callable
from typing import NamedTuple, Protocol

from turnout.storage.embedded.objects import Info, ObjectPage


class OpenObject(NamedTuple):
    info: Info
    start: int
    end: int
    """Exclusive."""
    body: AsyncIterable[bytes]
    close: Callable[[], None] = lambda: None
    """Call it in any case, also if the body was not read to its end."""


class BucketBackend(Protocol):
    """The objects of one bucket, for one project. Each call checks its keys."""

    async def info(self, key: str) -> Info: ...

    async def read(self, key: str, range_header: str) -> OpenObject:
        """`range_header`: the value of a Range header, or empty."""
        ...

    async def write(
        self, key: str, body: AsyncIterable[bytes], content_type: str, absent: bool, crc32c: str
    ) -> Info:
        """Stores the whole object or nothing.

        `absent`: raises AlreadyExists if the object exists. `crc32c`: raises Invalid if the body has another one.
        """
        ...

    async def delete(self, key: str) -> None: ...

    async def list(self, prefix: str, delimiter: str, after: str, limit: int) -> ObjectPage: ...
