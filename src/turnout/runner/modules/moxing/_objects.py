"""Objects of buckets."""

from __future__ import annotations

import base64
import calendar
import email.utils
import hashlib
import time
import zlib
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from ._errors import MissingObject, Response
from ._http import Reply, Request, Write, call, receive
from ._settings import options
from ._sign import encode

PART = 8 << 20
"""The size of the parts of a large upload. It grows if there would be more than 10,000."""
_MOST_PARTS = 10_000
_MOST_DELETES = 1000


class Object(NamedTuple):
    key: str
    size: int
    mtime: float
    """Seconds since 1970."""
    etag: str = ""


class Page(NamedTuple):
    objects: List[Object]
    prefixes: List[str]


def head(bucket: str, key: str) -> Optional[Object]:
    """None if there is no such object."""
    try:
        headers = call(Request("HEAD", bucket, key)).headers
    except MissingObject:
        return None
    return Object(key, int(headers.get("content-length", 0)), _date(headers), headers.get("etag", ""))


def has_bucket(bucket: str) -> bool:
    try:
        call(Request("HEAD", bucket))
    except MissingObject:
        return False
    return True


def get(
    bucket: str, key: str, write: Write, start: int = 0, size: Optional[int] = None, etag: str = ""
) -> Reply:
    """Passes on `size` bytes from `start`; None: all. With `etag` the object must still be the same one."""
    headers = {"if-match": etag} if etag else {}
    if size is not None:
        headers["range"] = f"bytes={start}-{start + size - 1}"
    return receive(Request("GET", bucket, key, headers=headers), write)


def read(bucket: str, key: str) -> bytes:
    data = bytearray()
    get(bucket, key, data.extend)
    return bytes(data)


def put(bucket: str, key: str, data: bytes) -> None:
    call(Request("PUT", bucket, key, headers=_checksum(data), body=data))


def make_directory(bucket: str, key: str) -> None:
    """`key` ends with a slash, or is empty for the bucket itself."""
    call(Request("PUT", bucket, key))


def copy(source: Tuple[str, str], target: Tuple[str, str]) -> None:
    headers = {"x-amz-copy-source": f"/{encode(source[0])}/{encode(source[1], safe='/')}"}
    reply = call(Request("PUT", target[0], target[1], headers=headers))
    _raise_late_error(reply, source)


def delete(bucket: str, key: str) -> None:
    call(Request("DELETE", bucket, key))


def delete_all(bucket: str, keys: List[str]) -> None:
    for first in range(0, len(keys), _MOST_DELETES):
        some = "".join(
            f"<Object><Key>{escape(key)}</Key></Object>" for key in keys[first : first + _MOST_DELETES]
        )
        body = f"<Delete><Quiet>true</Quiet>{some}</Delete>".encode()
        headers = {"content-md5": base64.b64encode(hashlib.md5(body).digest()).decode()}
        reply = call(Request("POST", bucket, query={"delete": ""}, headers=headers, body=body))
        failed = list(_elements(ElementTree.fromstring(reply.body), "Error")) if reply.body else []
        if failed:
            raise OSError(f"cannot remove {_text(failed[0], 'Key')}: {_text(failed[0], 'Message')}")


def listing(bucket: str, prefix: str, delimiter: str = "") -> Iterator[Page]:
    """Every page of a list. Raises MissingObject if there is no such bucket."""
    query = {"prefix": prefix, "max-keys": str(options.list_max_keys), "encoding-type": "url"}
    if delimiter:
        query["delimiter"] = delimiter
    while True:
        root = ElementTree.fromstring(call(Request("GET", bucket, query=query)).body)
        objects = [
            Object(
                unquote(_text(entry, "Key")),
                int(_text(entry, "Size") or 0),
                _iso_date(_text(entry, "LastModified")),
                _text(entry, "ETag"),
            )
            for entry in _elements(root, "Contents")
        ]
        prefixes = [unquote(_text(entry, "Prefix")) for entry in _elements(root, "CommonPrefixes")]
        yield Page(objects, prefixes)
        if _text(root, "IsTruncated") != "true":
            return
        after = unquote(_text(root, "NextMarker"))
        query["marker"] = after or max([entry.key for entry in objects] + prefixes)


class Upload:
    """An upload in parts, which is there when `complete` has returned, or not at all."""

    def __init__(self, bucket: str, key: str) -> None:
        self._bucket, self._key = bucket, key
        reply = call(Request("POST", bucket, key, query={"uploads": ""}))
        self._id = _text(ElementTree.fromstring(reply.body), "UploadId")
        self._etags: Dict[int, str] = {}

    def part(self, number: int, data: bytes) -> None:
        """Parts may be sent side by side. The first has the number 1."""
        query = {"partNumber": str(number), "uploadId": self._id}
        reply = call(Request("PUT", self._bucket, self._key, query, _checksum(data), data))
        self._etags[number] = reply.headers.get("etag", "")

    def complete(self) -> None:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
            for number, etag in sorted(self._etags.items())
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        reply = call(Request("POST", self._bucket, self._key, {"uploadId": self._id}, body=body))
        _raise_late_error(reply, (self._bucket, self._key))

    def abort(self) -> None:
        call(Request("DELETE", self._bucket, self._key, {"uploadId": self._id}))


def part_size(size: int) -> int:
    return max(PART, -(-size // _MOST_PARTS))


def _checksum(data: bytes) -> Dict[str, str]:
    return {"x-amz-checksum-crc32": base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()}


def _raise_late_error(reply: Reply, what: Tuple[str, str]) -> None:
    """A reply that took long may report its error after the status."""
    root = ElementTree.fromstring(reply.body)
    if root.tag.rpartition("}")[2] == "Error":
        code, message = _text(root, "Code"), _text(root, "Message")
        raise OSError(f"{'/'.join(what)}: {Response(reply.status, '', code, message, reply.headers)}")


def _elements(root: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (element for element in root if element.tag.rpartition("}")[2] == name)


def _text(root: ElementTree.Element, name: str) -> str:
    return next((element.text or "" for element in _elements(root, name)), "")


def _date(headers: Dict[str, str]) -> float:
    given = headers.get("last-modified")
    return email.utils.parsedate_to_datetime(given).timestamp() if given else 0.0


def _iso_date(text: str) -> float:
    """`2026-01-02T03:04:05.678Z`, as UTC."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) if whole else 0
    return seconds + (float(f"0.{fraction}") if fraction else 0.0)
