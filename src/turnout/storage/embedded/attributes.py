"""Checksums, type and metadata of an object, in an extended attribute of its file.

The attribute includes the file's size and modification time, so it no longer applies after a job has written to the
file. Jobs can write the attribute too, so it is validated whenever it is read.
"""

import hashlib
import os
import re
import stat
from typing import NamedTuple

import msgspec

from turnout.errors import Invalid
from turnout.vault.chunks import read_layout

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
    """The md5 in hex; or 32 hex digits and `-<n>`, if the object was joined of parts or written by a job."""
    md5: str | None
    """In hex, if it is known."""
    crc32c: str | None
    """Its four bytes in base64, if it is known."""
    content_type: str
    metadata: dict[str, str]
    generation: int
    """Changes whenever the bytes are replaced."""
    sealed: bool = False
    """The file is encrypted: `EmbeddedStore.pread` decrypts it."""


class Attributes(msgspec.Struct, array_like=True):
    size: int
    modified: int
    etag: str
    md5: str | None
    crc32c: str | None
    content_type: str
    metadata: dict[str, str]
    decrypted_size: int | None = None
    """The decrypted size of an encrypted object. `size` is always the file's."""


def check(content_type: str, metadata: dict[str, str]) -> None:
    """Raises Invalid if a value cannot be sent in a header."""
    if len(content_type) > _LONGEST_TYPE or not _VALUE.fullmatch(content_type):
        raise Invalid(f"{content_type[:60]!r} is not a valid content type", field="content_type")
    for name, value in metadata.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Invalid(f"the metadata {name[:60]!r} has a control character in it", field="metadata")
    if sum(len(name.encode()) + len(value.encode()) for name, value in metadata.items()) > _LONGEST_METADATA:
        raise Invalid(f"the metadata is longer than {_LONGEST_METADATA} bytes", field="metadata")


def write_attributes(file: int, attributes: Attributes) -> None:
    """On a file system without extended attributes: does nothing, or raises OSError if the object is encrypted."""
    try:
        os.setxattr(file, _NAME, msgspec.msgpack.encode(attributes))
    except OSError:
        if attributes.decrypted_size is not None:
            raise


def describe(key: str, file: int | str, status: os.stat_result) -> Info:
    """`file`: a descriptor, or a path. A link is not followed."""
    if stat.S_ISDIR(status.st_mode):
        return _marker(key, status)
    attributes = _read_attributes(file, status)
    if attributes is None:
        etag = hashlib.md5(
            f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}".encode(), usedforsecurity=False
        )
        attributes = Attributes(0, 0, f"{etag.hexdigest()}-1", None, None, UNKNOWN_TYPE, {})
        if isinstance(file, int) and (found := read_layout(file, status.st_size)):
            attributes.decrypted_size = found.size  # its attributes were lost, for example by a manual copy
    return Info(
        key,
        status.st_size if attributes.decrypted_size is None else attributes.decrypted_size,
        status.st_mtime_ns,
        attributes.etag,
        attributes.md5,
        attributes.crc32c,
        attributes.content_type or UNKNOWN_TYPE,
        attributes.metadata,
        status.st_mtime_ns,
        attributes.decrypted_size is not None,
    )


def _marker(key: str, status: os.stat_result) -> Info:
    """A directory as an empty object whose key ends with a slash, as other tools show it."""
    at = status.st_mtime_ns
    return Info(key, 0, at, _EMPTY_MD5, _EMPTY_MD5, "AAAAAA==", "application/x-directory", {}, at)


def _read_attributes(file: int | str, status: os.stat_result) -> Attributes | None:
    try:
        if isinstance(file, int):
            text = os.getxattr(file, _NAME)
        else:
            text = os.getxattr(file, _NAME, follow_symlinks=False)
        attributes = msgspec.msgpack.decode(text, type=Attributes)
        check(attributes.content_type, attributes.metadata)
    except (OSError, msgspec.DecodeError, Invalid):
        return None
    if (attributes.size, attributes.modified) != (status.st_size, status.st_mtime_ns):
        return None
    if not _ETAG.fullmatch(attributes.etag) or not _MD5.fullmatch(attributes.md5 or "0" * 32):
        return None
    return attributes if _CRC32C.fullmatch(attributes.crc32c or "AAAAAA==") else None
