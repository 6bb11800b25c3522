"""crc32c: computing it, combining two of them, and its text form."""

import base64

import google_crc32c

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed

_Matrix = tuple[int, ...]
"""How a number of zero bits changes each of the 32 bits."""


def extend(crc: int, data: bytes | memoryview) -> int:
    # The library accepts only bytes.
    return google_crc32c.extend(crc, data if isinstance(data, bytes) else bytes(data))


def combine(first: int, second: int, length: int) -> int:
    """The crc32c of two pieces in a row, from those of each. `length`: bytes in the second piece."""
    if not length:
        return first
    matrix = _square(_square(_square(_ONE_BIT)))  # a zero byte
    while length:
        if length & 1:
            first = _times(matrix, first)
        length >>= 1
        matrix = _square(matrix)
    return first ^ second


def encode(crc: int) -> str:
    """Base64 of its four bytes, as in the APIs of Google and S3."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def decode(text: str) -> int:
    return int.from_bytes(base64.b64decode(text), "big")


def _square(matrix: _Matrix) -> _Matrix:
    return tuple(_times(matrix, row) for row in matrix)


def _times(matrix: _Matrix, vector: int) -> int:
    total = 0
    for row in matrix:
        if vector & 1:
            total ^= row
        vector >>= 1
    return total


_ONE_BIT: _Matrix = (_POLYNOMIAL, *(1 << bit for bit in range(31)))
