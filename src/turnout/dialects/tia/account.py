"""The account that a project looks like to TI-A's clients: the same numbers for the same project, always."""

import zlib
from functools import lru_cache


@lru_cache(maxsize=256)
def app_id(project: str) -> int:
    """Ten digits, in the range of Tencent's own; it is also the namespace of the project's pods."""
    return 1_250_000_000 + zlib.crc32(project.encode()) % 50_000_000


@lru_cache(maxsize=256)
def uin(project: str) -> str:
    return str(100_000_000_000 + zlib.crc32(b"uin:" + project.encode()) % 1_000_000_000)
