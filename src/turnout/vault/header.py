"""The beginning of all that is sealed: which key of the ring it takes, and the data key that is wrapped by it.

Only this much of the room is needed to tell what is sealed from what is not.
"""

import base64
import struct
from typing import NamedTuple

MAGIC = b"\x93TURNOUT\x1a\x01"
"""No text begins like this, and no JSON."""
MARK = "\x1asealed:"
"""Begins what is sealed and kept as text."""

_LENGTHS = struct.Struct(">HH")
_FIXED = len(MAGIC) + _LENGTHS.size
LONGEST_NAME = 1024
LONGEST = 2048
"""Bytes: more need not be read to have all of it."""


class Header(NamedTuple):
    key: str
    """Its name in the ring."""
    wrapped: bytes
    """The data key."""

    def encode(self) -> bytes:
        name = self.key.encode()
        return MAGIC + _LENGTHS.pack(len(name), len(self.wrapped)) + name + self.wrapped

    @staticmethod
    def of(key: str, wrapped: str) -> "Header":
        """With the data key as `text` spells it."""
        return Header(key, base64.b64decode(wrapped))

    @property
    def text(self) -> str:
        return base64.b64encode(self.wrapped).decode()


def read_header(data: bytes) -> tuple[Header, int] | None:
    """The header that some bytes begin with, and how long it is; None if they begin with none."""
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
