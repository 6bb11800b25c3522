"""AWS Signature Version 2 of presigned URLs, which is boto3's default, and of forms.

A URL has an expiry time but no start time. Like version 4, it may be valid for at most seven days.
"""

import base64
import hmac
from collections.abc import Callable

from turnout.access.keys import Key
from turnout.access.sigv4 import (
    LONGEST_LIFE,
    SKEW,
    HttpRequest,
    Pairs,
    Problem,
    SignatureError,
    check_signature,
)

KEY_ID = "AWSAccessKeyId"

_SUBRESOURCES = frozenset((
    "accelerate", "acl", "analytics", "cors", "defaultObjectAcl", "delete", "inventory", "lifecycle", "location",
    "logging", "metrics", "notification", "object-lock", "partNumber", "policy", "replication", "requestPayment",
    "response-cache-control", "response-content-disposition", "response-content-encoding",
    "response-content-language", "response-content-type", "response-expires", "restore", "select", "select-type",
    "storageClass", "tagging", "torrent", "uploadId", "uploads", "versionId", "versioning", "versions", "website",
))  # fmt: skip
"""The query parameters that are signed."""


def verify(find: Callable[[str], Key | None], request: HttpRequest, now: float) -> tuple[Key, HttpRequest]:
    """The key, and the request with the headers that its URL contains. Raises SignatureError."""
    key_id, expires, signature = (request.param(name) or "" for name in (KEY_ID, "Expires", "Signature"))
    if (
        not signature
        or not signature.isascii()
        or not (expires.isascii() and expires.isdecimal() and len(expires) <= 12)
    ):
        raise SignatureError(Problem.BAD_QUERY, f"A presigned URL needs {KEY_ID}, Expires and Signature.")
    if now > int(expires):
        raise SignatureError(Problem.EXPIRED, "Request has expired.")
    if int(expires) > now + LONGEST_LIFE + SKEW:
        raise SignatureError(Problem.BAD_QUERY, f"Expires must be within {LONGEST_LIFE} seconds from now.")
    key = find(key_id)
    request = request._replace(headers=[*request.headers, *_headers_in_query(request)])
    text = "\n".join((
        request.method,
        request.header("content-md5").strip(),
        request.header("content-type").strip(),
        expires,
        _extension_headers(request),
    ))  # fmt: skip
    # The signature is computed for unknown keys too, so that the response time reveals nothing.
    expected, with_slash = (sign(key, text + _resource(request, end)) for end in ("", "/"))
    if request.path.count(b"/") == 1 and hmac.compare_digest(with_slash.encode(), signature.encode()):
        expected = with_slash  # boto3 asks for /bucket and signs /bucket/
    return check_signature(key, key_id, expected, signature), request


def sign(key: Key | None, text: str) -> str:
    secret = (key.secret if key else "").encode()
    return base64.b64encode(hmac.digest(secret, text.encode("utf-8", "surrogateescape"), "sha1")).decode()


def _headers_in_query(request: HttpRequest) -> Pairs:
    """boto3 puts the headers that it has signed into the URL. They count as if the client had sent them."""
    sent = {name for name, _ in request.headers}
    return [
        (name, value)
        for name, value in request.query
        if (name.startswith("x-amz-") or name in ("content-md5", "content-type")) and name not in sent
    ]


def _extension_headers(request: HttpRequest) -> str:
    names = sorted({name for name, _ in request.headers if name.startswith("x-amz-")})
    values = {
        name: ",".join(value.strip() for header, value in request.headers if header == name) for name in names
    }
    return "".join(f"{name}:{value}\n" for name, value in values.items())


def _resource(request: HttpRequest, end: str) -> str:
    signed = sorted((name, value) for name, value in request.query if name in _SUBRESOURCES)
    query = "&".join(f"{name}={value}" if value else name for name, value in signed)
    return request.path.decode("latin-1") + end + (f"?{query}" if query else "")
