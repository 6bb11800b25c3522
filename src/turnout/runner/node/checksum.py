"""Checksums of fetched objects, where the standard library can compute them in acceptable time."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from typing import List

_MOST_CRC = 256 << 10
"""In plain Python it takes 0.1 s for this many bytes."""
_POLYNOMIAL = 0x82F63B78
_READ = 1 << 20


def is_crc32c(fd: int, size: int, expected: str) -> bool:
    """Whether the file has this CRC32C, in base64 as Google writes it. True if it is too large to tell."""
    if not expected or size > _MOST_CRC:
        return True
    crc = 0xFFFFFFFF
    for byte in os.pread(fd, size, 0):
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return base64.b64encode((crc ^ 0xFFFFFFFF).to_bytes(4, "big")).decode() == expected


def md5_in(etag: str) -> str:
    """The MD5 that an ETag seems to be; empty: it is something else."""
    bare = etag.strip('"').lower()
    return bare if re.fullmatch(r"[0-9a-f]{32}", bare) else ""


def md5(fd: int, size: int) -> str:
    """Empty if this Python does not have it, as in FIPS mode."""
    try:
        running = hashlib.md5()
    except ValueError:
        return ""
    at = 0
    while at < size:
        data = os.pread(fd, _READ, at)
        if not data:
            break
        running.update(data)
        at += len(data)
    return running.hexdigest()


def _table() -> List[int]:
    table: List[int] = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()
