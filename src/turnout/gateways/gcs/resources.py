"""Buckets and objects as the JSON API shows them."""

import base64
import time
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from turnout.storage.embedded.objects import Info

Document = dict[str, Any]

_SECOND = 1_000_000_000


def bucket(base: str, name: str, created: int) -> Document:
    at = stamp(created)
    return {
        "kind": "storage#bucket",
        "id": name,
        "name": name,
        "selfLink": f"{base}/storage/v1/b/{name}",
        "projectNumber": "0",
        "location": "US",
        "locationType": "multi-region",
        "storageClass": "STANDARD",
        "metageneration": "1",
        "etag": "CAE=",
        "timeCreated": at,
        "updated": at,
    }


def storage_layout(bucket: str) -> Document:
    return {
        "kind": "storage#storageLayout",
        "bucket": bucket,
        "location": "US",
        "locationType": "multi-region",
        "hierarchicalNamespace": {"enabled": False},
    }


def object_(base: str, bucket: str, info: Info) -> Document:
    """`base`: the URL by which the client reached the service, for the links. Unknown checksums are left out."""
    path = f"/storage/v1/b/{bucket}/o/{quote(info.key, safe='')}"
    at = stamp(info.modified)
    document: Document = {
        "kind": "storage#object",
        "id": f"{bucket}/{info.key}/{info.generation}",
        "name": info.key,
        "bucket": bucket,
        "selfLink": base + path,
        "mediaLink": f"{base}/download{path}?generation={info.generation}&alt=media",
        "generation": str(info.generation),
        "metageneration": "1",
        "contentType": info.content_type,
        "storageClass": "STANDARD",
        "size": str(info.size),
        "etag": info.etag,
        "timeCreated": at,
        "updated": at,
        "timeStorageClassUpdated": at,
        "timeFinalized": at,
    }
    if info.md5:
        document["md5Hash"] = base64.b64encode(bytes.fromhex(info.md5)).decode()
    if info.crc32c:
        document["crc32c"] = info.crc32c
    if info.metadata:
        document["metadata"] = info.metadata
    return document


def hashes(info: Info) -> str:
    """The value of an X-Goog-Hash header."""
    known = [f"crc32c={info.crc32c}"] if info.crc32c else []
    if info.md5:
        known.append("md5=" + base64.b64encode(bytes.fromhex(info.md5)).decode())
    return ",".join(known)


def stamp(at: int) -> str:
    """RFC 3339, in milliseconds as Google has them."""
    seconds = _seconds(at // _SECOND)
    return f"{seconds}.{at % _SECOND // 1_000_000:03}Z"


@lru_cache(256)
def _seconds(at: int) -> str:
    """Objects of one list were often made in the same second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
