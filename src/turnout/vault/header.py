"""The header of sealed data: the name of a key of the ring, and the data key that it wraps.

This module is enough to tell whether data is sealed.
"""

import base64
import struct
from typing import NamedTuple

MAGIC = b"\x93TURNOUT\x1a\x01"
"""Not a valid beginning of text or JSON."""
MARK = "\x1asealed:"
"""Prefix of sealed data that is stored as text."""

_LENGTHS = struct.Struct(">HH")
_FIXED = len(MAGIC) + _LENGTHS.size
LONGEST = 2048
"""Upper bound of a header's size in bytes."""


class Header(NamedTuple):
    key: str
    """The name of the ring's key."""
    wrapped: bytes
    """The data key."""

    def encode(self) -> bytes:
        name = self.key.encode()
        return MAGIC + _LENGTHS.pack(len(name), len(self.wrapped)) + name + self.wrapped

    @staticmethod
    def of(key: str, wrapped: str) -> "Header":
        """`wrapped` is the data key as in `text`."""
        return Header(key, base64.b64decode(wrapped))

    @property
    def text(self) -> str:
        return base64.b64encode(self.wrapped).decode()


def read_header(data: bytes) -> tuple[Header, int] | None:
    """The header at the beginning of `data`, and its length; None if there is none."""
    if not data.startswith(MAGIC) or len(data) < _FIXED:
        return None
    name_size, wrapped_size = _LENGTHS.unpack_from(data, len(MAGIC))
    end = _FIXED + name_size + wrapped_size
    if len(data) < end:
        return None
    try:
        name = data[_FIXED : _FIXED + name_size].decode()
    except UnicodeDecodeError:
        return None
    return Header(name, data[_FIXED + name_size : end]), end


def is_sealed(data: bytes) -> bool:
    return data.startswith(MAGIC)


def is_sealed_text(text: str) -> bool:
    return text.startswith(MARK)
