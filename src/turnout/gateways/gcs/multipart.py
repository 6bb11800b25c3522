"""`multipart/related` as uploads use it: a part of JSON, then the object's bytes to the end."""

import re
from collections.abc import AsyncIterator

import msgspec

from turnout.errors import Invalid, TooLarge

_LARGEST_HEAD = 1 << 20


async def split(content_type: str, body: AsyncIterator[bytes]) -> tuple[dict, str, AsyncIterator[bytes]]:
    """The metadata, the media's own content type, and its bytes as they come. Raises Invalid."""
    boundary = _boundary(content_type)
    opening, between = b"--" + boundary, b"\r\n--" + boundary
    # A newline in front, so that the first boundary looks like the others.
    text = await _until(b"\r\n", body, lambda text: text.count(between) >= 2 and _ends_head(text, between))
    _, first, rest = text.split(between, 2)
    if not text.startswith(b"\r\n" + opening):
        raise Invalid("the body does not begin with the boundary that Content-Type names")
    _, _, document = first.partition(b"\r\n\r\n")
    head, _, media = rest.partition(b"\r\n\r\n")
    found = re.search(rb"^content-type:[ \t]*([^\r\n]+)", head, re.IGNORECASE | re.MULTILINE)
    kind = found[1].decode("latin-1").strip() if found else ""
    return metadata(document), kind, _without_end(media, body, between + b"--")


def metadata(text: bytes) -> dict:
    """An object resource as a client sends it."""
    try:
        document = msgspec.json.decode(text or b"{}")
    except msgspec.DecodeError as error:
        raise Invalid(f"the object's metadata is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Invalid("the object's metadata must be a JSON object")
    return document


def _boundary(content_type: str) -> bytes:
    found = re.search(r"""boundary=(?:"([^"]{1,70})"|'([^']{1,70})'|([^\s;"']{1,70}))""", content_type)
    if not content_type.lower().startswith("multipart/") or not found:
        raise Invalid(f"Content-Type must be multipart/related with a boundary, not {content_type!r}")
    return (found[1] or found[2] or found[3]).encode("latin-1")


async def _until(text: bytes, body: AsyncIterator[bytes], enough) -> bytes:  # noqa: ANN001
    while not enough(text):
        if len(text) > _LARGEST_HEAD:
            raise TooLarge(f"the metadata part is longer than {_LARGEST_HEAD} bytes")
        piece = await anext(body, None)
        if piece is None:
            raise Invalid("the body ends before its second part begins")
        text += piece
    return text


def _ends_head(text: bytes, between: bytes) -> bool:
    return b"\r\n\r\n" in text.split(between, 2)[2]


async def _without_end(held: bytes, body: AsyncIterator[bytes], end: bytes) -> AsyncIterator[bytes]:
    """The closing boundary is what the body ends with; the bytes before it are nobody's business."""
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
