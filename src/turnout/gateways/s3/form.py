"""Parses `multipart/form-data`: the fields, then the bytes of the file. Parts after the file are ignored."""

import re
from collections.abc import AsyncIterator
from typing import NamedTuple

from turnout.gateways.s3.errors import S3Error

MAX_FIELDS = 64 << 10

_BOUNDARY = re.compile(r"""boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_NAME = re.compile(r'\bname="([^"]*)"')
_FILENAME = re.compile(r'\bfilename="([^"]*)"')


class Fields(NamedTuple):
    values: dict[str, str]
    """By their names in lower case."""
    filename: str
    file_type: str
    rest: bytes
    """The beginning of the file."""


def boundary(content_type: str) -> bytes:
    found = _BOUNDARY.search(content_type)
    if not found:
        raise _malformed("Content-Type has no boundary")
    return (found[1] or found[2]).encode("latin-1")


async def read_fields(pieces: AsyncIterator[bytes], limit: bytes) -> Fields:
    """Reads up to where the file begins. Raises S3Error."""
    text, values = b"\r\n", dict[str, str]()
    delimiter = b"\r\n--" + limit
    while True:
        text = await _until(text, pieces, delimiter + b"\r\n", b"\r\n\r\n")
        if not text.startswith(delimiter + b"\r\n"):
            raise _malformed("a part does not begin with the boundary that Content-Type names")
        head, _, text = text[len(delimiter) :].partition(b"\r\n\r\n")
        headers = head.decode("utf-8", "replace")
        found = _NAME.search(headers)
        if not found:
            raise _malformed("a part has no name")
        name = found[1].lower()
        if name == "file":
            filename = _FILENAME.search(headers)
            kind = re.search(r"^content-type:[ \t]*([^\r\n]+)", headers, re.IGNORECASE | re.MULTILINE)
            return Fields(values, filename[1] if filename else "", kind[1].strip() if kind else "", text)
        text = await _until(text, pieces, b"", delimiter)
        value, _, rest = text.partition(delimiter)
        text = delimiter + rest
        if name in values:
            raise _malformed(f"the field {name[:100]} occurs twice")
        try:
            values[name] = value.decode()
        except UnicodeDecodeError:
            raise _malformed(f"the field {name[:100]} is not UTF-8") from None
        if sum(map(len, values.values())) + 64 * len(values) > MAX_FIELDS:
            raise _too_long()


class FileBytes:
    """Extracts the bytes of the file from the rest of the body."""

    def __init__(self, limit: bytes) -> None:
        self._delimiter = b"\r\n--" + limit
        self._held = b""
        self._complete = False

    def feed(self, data: bytes) -> bytes:
        if self._complete:
            return b""  # parts after the file are ignored
        data = self._held + data
        end = data.find(self._delimiter)
        if end >= 0:
            self._complete, self._held = True, b""
            return data[:end]
        keep = len(self._delimiter) - 1
        self._held = data[-keep:]
        return data[:-keep]

    def finish(self) -> None:
        if not self._complete:
            raise S3Error("IncompleteBody", "The body ends before the boundary that closes the file.")


async def _until(text: bytes, pieces: AsyncIterator[bytes], opening: bytes, end: bytes) -> bytes:
    """Reads until `end` comes after the opening."""
    while end not in text[len(opening) - 2 if opening else 0 :]:
        if len(text) > MAX_FIELDS:
            raise _too_long()
        piece = await anext(pieces, None)
        if piece is None:
            if text.startswith(b"\r\n--") and text.rstrip().endswith(b"--"):
                message = "POST requires exactly one file upload per request."
                raise S3Error("IncorrectNumberOfFilesInPostRequest", message)
            raise _malformed("the body ends before the file begins")
        text += piece
    return text


def _malformed(why: str) -> S3Error:
    return S3Error("MalformedPOSTRequest", f"The body is not well-formed multipart/form-data: {why}.")


def _too_long() -> S3Error:
    message = f"The fields before the file may have {MAX_FIELDS} bytes."
    return S3Error("MaxPostPreDataLengthExceededError", message)
