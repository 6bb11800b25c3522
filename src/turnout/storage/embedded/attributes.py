"""What an object has besides its bytes, kept in an extended attribute of its file.

Size and time of modification are kept with it: when a job has written to the file since, it no longer applies. The
job's user may write the attribute as well, so what it says is checked whenever it is read.
"""

import hashlib
import os
import re
import stat
from typing import NamedTuple

import msgspec

from turnout.errors import Invalid
from turnout.vault.chunks import shape

UNKNOWN_TYPE = "application/octet-stream"

_EMPTY_MD5 = hashlib.md5(b"", usedforsecurity=False).hexdigest()
_NAME = "user.turnout.object"
_LONGEST_METADATA = 2048  # what S3 allows; ext4 has 4 KiB for all attributes of a file
_LONGEST_TYPE = 255
_VALUE = re.compile(r"[\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]*")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MD5 = re.compile(r"[0-9a-f]{32}")
_ETAG = re.compile(r"[0-9a-f]{32}(-[0-9]{1,5})?")
_CRC32C = re.compile(r"[A-Za-z0-9+/]{6}==")


class Info(NamedTuple):
    key: str
    size: int
    modified: int
    """In nanoseconds since 1970."""
    etag: str
    """Hex md5, or 32 hex digits and `-<n>` where it is none: put together of parts, or written by a job."""
    md5: str | None
    """In hex, where it is known."""
    crc32c: str | None
    """Base64 of its four bytes, where it is known."""
    content_type: str
    metadata: dict[str, str]
    generation: int
    """Another one whenever the bytes are replaced."""
    sealed: bool = False
    """Its file holds it encrypted: `Embedded.pread` opens it."""


class Attributes(msgspec.Struct, array_like=True):
    size: int
    modified: int
    etag: str
    md5: str | None
    crc32c: str | None
    content_type: str
    metadata: dict[str, str]
    plain: int | None = None
    """Of a sealed object: how many bytes it has when it is opened. `size` is always the file's."""


def check(content_type: str, metadata: dict[str, str]) -> None:
    """Raises Invalid for what could not go into a header again."""
    if len(content_type) > _LONGEST_TYPE or not _VALUE.fullmatch(content_type):
        raise Invalid(f"{content_type[:60]!r} is no content type", field="content_type")
    for name, value in metadata.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Invalid(f"the metadata {name[:60]!r} has a control character in it", field="metadata")
    if sum(len(name.encode()) + len(value.encode()) for name, value in metadata.items()) > _LONGEST_METADATA:
        raise Invalid(f"the metadata is longer than {_LONGEST_METADATA} bytes", field="metadata")


def keep(file: int, attributes: Attributes) -> None:
    """Where the file system cannot keep it, it is not kept. Raises OSError if it must be: for a sealed object."""
    try:
        os.setxattr(file, _NAME, msgspec.msgpack.encode(attributes))
    except OSError:
        if attributes.plain is not None:
            raise


def describe(key: str, file: int | str, status: os.stat_result) -> Info:
    """`file`: open, or a path that is not followed if it is a link."""
    if stat.S_ISDIR(status.st_mode):
        return _marker(key, status)
    kept = _recall(file, status)
    if kept is None:
        etag = hashlib.md5(
            f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}".encode(), usedforsecurity=False
        )
        kept = Attributes(0, 0, f"{etag.hexdigest()}-1", None, None, UNKNOWN_TYPE, {})
        if isinstance(file, int) and (found := shape(file, status.st_size)):
            kept.plain = found.size  # its attributes were lost on the way, as a copy by hand does
    return Info(
        key,
        status.st_size if kept.plain is None else kept.plain,
        status.st_mtime_ns,
        kept.etag,
        kept.md5,
        kept.crc32c,
        kept.content_type or UNKNOWN_TYPE,
        kept.metadata,
        status.st_mtime_ns,
        kept.plain is not None,
    )


def _marker(key: str, status: os.stat_result) -> Info:
    """A directory, as the empty object with a slash at its end that other tools make of it."""
    at = status.st_mtime_ns
    return Info(key, 0, at, _EMPTY_MD5, _EMPTY_MD5, "AAAAAA==", "application/x-directory", {}, at)


def _recall(file: int | str, status: os.stat_result) -> Attributes | None:
    try:
        if isinstance(file, int):
            text = os.getxattr(file, _NAME)
        else:
            text = os.getxattr(file, _NAME, follow_symlinks=False)
        kept = msgspec.msgpack.decode(text, type=Attributes)
        check(kept.content_type, kept.metadata)
    except (OSError, msgspec.DecodeError, Invalid):
        return None
    if (kept.size, kept.modified) != (status.st_size, status.st_mtime_ns):
        return None
    if not _ETAG.fullmatch(kept.etag) or not _MD5.fullmatch(kept.md5 or "0" * 32):
        return None
    return kept if _CRC32C.fullmatch(kept.crc32c or "AAAAAA==") else None
