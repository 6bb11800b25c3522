"""What is known of an object in a remote store."""

import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from turnout.storage.embedded.attributes import UNKNOWN_TYPE, Info

_STANDARD = frozenset(
    (
        "Content-Type",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Cache-Control",
        "Storage-Class",
    )
)
_SECOND = 1_000_000_000


def describe(meta: Any, attributes: Mapping[str, str] | None = None) -> Info:
    """`attributes`: lists do not have them.

    The generation is the same in lists and in other answers, where times have other resolutions: the second, and a
    hash of the etag.
    """
    modified: datetime = meta["last_modified"]
    seconds = int(modified.timestamp())
    etag = (meta["e_tag"] or f"{seconds}-{meta['size']}").removeprefix("W/").strip('"')
    known = attributes or {}
    return Info(
        meta["path"],
        meta["size"],
        seconds * _SECOND,
        etag,
        None,
        None,
        known.get("Content-Type") or UNKNOWN_TYPE,
        {name: value for name, value in known.items() if name not in _STANDARD},
        seconds * _SECOND + zlib.crc32(etag.encode()) % _SECOND,
    )
