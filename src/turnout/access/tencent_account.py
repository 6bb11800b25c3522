"""AppId and Uin. They are computed from the project, so a project always has the same numbers."""

import zlib
from functools import lru_cache


@lru_cache(maxsize=256)
def app_id(project: str) -> int:
    """Ten digits, in the range that Tencent uses. The namespace of the project's pods has the same number."""
    return 1_250_000_000 + zlib.crc32(project.encode()) % 50_000_000


@lru_cache(maxsize=256)
def uin(project: str) -> str:
    return str(100_000_000_000 + zlib.crc32(b"uin:" + project.encode()) % 1_000_000_000)
