"""URLs of objects, `obs://bucket/key` and `s3://bucket/key`; every other path is a local one."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

SCHEMES = ("obs://", "s3://")


class Place(NamedTuple):
    scheme: str
    bucket: str
    key: str
    """Without a slash at the beginning; a directory may have one at its end."""

    @property
    def directory(self) -> str:
        """The beginning of the keys that are below it."""
        return f"{self.key.rstrip('/')}/" if self.key.strip("/") else ""

    def url(self, key: str) -> str:
        return f"{self.scheme}{self.bucket}/{key}"


def is_remote(path: Any) -> bool:
    return isinstance(path, str) and path.startswith(SCHEMES)


def place(url: str) -> Place:
    """Raises ValueError."""
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise ValueError(f"{url!r} has no bucket: it must be like obs://bucket/dir/file")
    # os.path.join and f-strings make double slashes, and OBS' own tools ignore them.
    parts = [part for part in key.split("/") if part]
    return Place(f"{scheme}://", bucket, "/".join(parts) + ("/" if parts and key.endswith("/") else ""))


def join(directory: str, name: str) -> str:
    if is_remote(directory):
        return f"{directory.rstrip('/')}/{name}"
    return os.path.join(directory, name)


def text(path: Any) -> str:
    """A path as text: also `pathlib.Path` and bytes."""
    return os.fsdecode(path)
