"""Parses `multipart/related` uploads: a JSON part, then the object's bytes."""

import re
from collections.abc import AsyncIterator

import msgspec

from turnout.errors import Invalid, TooLarge

_MAX_HEAD = 1 << 20


async def split(content_type: str, body: AsyncIterator[bytes]) -> tuple[dict, str, AsyncIterator[bytes]]:
    """The metadata, the content type of the media part, and a stream of its bytes. Raises Invalid.

    Lines end with CRLF or, from gcloud and gcsfs, with LF. All lines must end like the first one.
    """
    opening = b"--" + boundary(content_type)
    text = await _until(b"", body, lambda text: b"\n" in text or len(text) > 1000)
    found = re.match(re.escape(opening) + rb"[ \t]*(\r?\n)", text)
    if not found:
        raise Invalid("the body does not begin with the boundary that Content-Type names")
    newline = found[1]
    blank, between = newline * 2, newline + opening
    text = await _until(text, body, lambda text: between in text and blank in text.partition(between)[2])
    first, _, rest = text[len(opening) :].partition(between)
    _, _, document = first.partition(blank)
    head, _, media = rest.partition(blank)
    kind = re.search(rb"^content-type:[ \t]*([^\r\n]+)", head, re.IGNORECASE | re.MULTILINE)
    return (
        metadata(document),
        kind[1].decode("latin-1").strip() if kind else "",
        _without_end(media, body, between + b"--"),
    )


def metadata(text: bytes) -> dict:
    """An object resource as a client sends it."""
    try:
        document = msgspec.json.decode(text or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the object's metadata is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Invalid("the object's metadata must be a JSON object")
    return document


def boundary(content_type: str) -> bytes:
    """Raises Invalid."""
    found = re.search(r"""boundary=(?:"([^"]{1,70})"|'([^']{1,70})'|([^\s;"']{1,70}))""", content_type)
    if not content_type.lower().startswith("multipart/") or not found:
        raise Invalid(f"Content-Type must be multipart with a boundary, not {content_type!r}")
    return (found[1] or found[2] or found[3]).encode("latin-1")


async def _until(text: bytes, body: AsyncIterator[bytes], enough) -> bytes:  # noqa: ANN001
    while not enough(text):
        if len(text) > _MAX_HEAD:
            raise TooLarge(f"the metadata part is longer than {_MAX_HEAD} bytes")
        piece = await anext(body, None)
        if piece is None:
            raise Invalid("the body ends before its second part begins")
        text += piece
    return text


async def _without_end(held: bytes, body: AsyncIterator[bytes], end: bytes) -> AsyncIterator[bytes]:
    """Yields everything but the closing boundary at the end."""
    keep = len(end) + 2
    async for piece in body:
        held += piece
        if len(held) > keep:
            yield held[:-keep]
            held = held[-keep:]
    start = held.rfind(end)
    if start < 0 or held[start + len(end) :].strip():
        raise Invalid("the body does not end with its closing boundary: it was cut off")
    yield held[:start]
