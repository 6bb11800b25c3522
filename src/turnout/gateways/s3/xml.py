"""Parses the small XML documents of requests, and escapes text for those of responses."""

import re
import xml.etree.ElementTree as ElementTree
from html import escape

from turnout.gateways.s3.errors import S3Error

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'

_MOST_TAGS = 200_000
"""The most tags, and the most attributes. 10,000 parts with all their checksums have 160,000 tags."""
_PIECE = 16 << 10
"""Other threads run between two pieces."""
_UNFIT = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse(text: bytes) -> ElementTree.Element:
    """For a thread. Tag names are without their namespace. Raises S3Error."""
    # A document type could define entities that expand or read files.
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text or b"\x00" in text:
        raise _malformed()
    if text.count(b"<") > _MOST_TAGS or text.count(b"=") > _MOST_TAGS:
        raise S3Error("EntityTooLarge", "The document has too many elements or attributes.")
    parser = ElementTree.XMLParser()
    try:
        for at in range(0, len(text), _PIECE):
            parser.feed(text[at : at + _PIECE])
        root: ElementTree.Element = parser.close()
    except (ElementTree.ParseError, ValueError, LookupError):
        raise _malformed() from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def value(element: ElementTree.Element, name: str) -> str:
    return element.findtext(name) or ""


def escape_text(text: str) -> str:
    """Escapes text. Characters that XML does not allow become U+FFFD."""
    return escape(_UNFIT.sub("\ufffd", text), quote=False)


def in_namespace(text: str, namespace: str) -> str:
    """The document with another namespace at its root. Empty: none."""
    return text.replace(f" {NAMESPACE}", f' xmlns="{namespace}"' if namespace else "", 1)


def failure(error: S3Error, resource: str, request_id: str) -> str:
    return (
        f"<Error><Code>{error.code}</Code><Message>{escape_text(error.message)}</Message>"
        f"<Resource>{escape_text(resource)}</Resource><RequestId>{request_id}</RequestId></Error>"
    )


def _malformed() -> S3Error:
    return S3Error(
        "MalformedXML", "The XML that you provided was not well-formed or did not have the right form."
    )
