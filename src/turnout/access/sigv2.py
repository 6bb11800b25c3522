"""AWS Signature Version 2, in the Authorization header, in a presigned URL and of forms. OBS signs the same way.

A URL has an expiry time but no start time. Like version 4, it may be valid for at most seven days.
"""

import base64
import email.utils
import hmac
from collections.abc import Callable
from typing import NamedTuple

from turnout.access.keys import Key
from turnout.access.sigv4 import (
    LONGEST_LIFE,
    SKEW,
    HttpRequest,
    Pairs,
    Problem,
    SignatureError,
    check_signature,
    parse_timestamp,
)


class Scheme(NamedTuple):
    """The names that differ between AWS and OBS."""

    authorization: str
    """The first word of the Authorization header."""
    key_id: str
    """The parameter of a presigned URL that has the key's id."""
    prefix: str
    """Of the headers that are signed."""


AWS = Scheme("AWS", "AWSAccessKeyId", "x-amz-")
OBS = Scheme("OBS", "AccessKeyId", "x-obs-")
KEY_ID = AWS.key_id

_SUBRESOURCES = frozenset((
    "accelerate", "acl", "analytics", "append", "cors", "defaultobjectacl", "delete", "encryption", "fileinterface",
    "inventory", "length", "lifecycle", "location", "logging", "metadata", "metrics", "modify", "name",
    "notification", "object-lock", "partnumber", "policy", "policystatus", "position", "publicaccessblock", "quota",
    "rename", "replication", "requestpayment", "response-cache-control", "response-content-disposition",
    "response-content-encoding", "response-content-language", "response-content-type", "response-expires", "restore",
    "retention", "select", "select-type", "storageclass", "storageinfo", "storagepolicy", "tagging", "torrent",
    "truncate", "uploadid", "uploads", "versionid", "versioning", "versions", "website", "x-image-process",
))  # fmt: skip
"""The query parameters that are signed, in lower case."""


def is_presigned(scheme: Scheme, request: HttpRequest) -> bool:
    return request.param(scheme.key_id) is not None


def verify(
    find: Callable[[str], Key | None],
    request: HttpRequest,
    now: float,
    scheme: Scheme = AWS,
    bucket: str = "",
) -> tuple[Key, HttpRequest]:
    """The key, and the request with the headers that its URL contains. Raises SignatureError.

    `bucket`: the bucket, if the host names it and not the path.
    """
    if is_presigned(scheme, request):
        key_id, signature, date = _in_query(scheme, request, now)
        request = request._replace(headers=[*request.headers, *_headers_in_query(scheme, request)])
    else:
        key_id, signature, date = _in_header(scheme, request, now)
    if scheme is OBS:
        _check_signed(request)
    key = find(key_id)
    text = "\n".join((
        request.method,
        request.header("content-md5").strip(),
        request.header("content-type").strip(),
        date,
        _extension_headers(scheme, request),
    ))  # fmt: skip
    # The signature is computed for unknown keys too, so that the response time reveals nothing.
    resources = _resources(scheme, request, bucket)
    expected = [sign(key, text + resource) for resource in resources]
    given = signature.encode("utf-8", "replace")
    matching = [one for one in expected if hmac.compare_digest(one.encode(), given)]
    return check_signature(key, key_id, (matching or expected)[0], signature), request


def sign(key: Key | None, text: str) -> str:
    secret = (key.secret if key else "").encode()
    return base64.b64encode(hmac.digest(secret, text.encode("utf-8", "surrogateescape"), "sha1")).decode()


def _check_signed(request: HttpRequest) -> None:
    """Raises SignatureError for headers of S3: the gateway reads their names, and OBS does not sign them."""
    unsigned = sorted({name for name, _ in request.headers if name.startswith(AWS.prefix)})
    if unsigned:
        raise SignatureError(
            Problem.UNSIGNED_HEADERS,
            f"There were headers in the request that were not signed: {', '.join(unsigned)}",
        )


def _in_query(scheme: Scheme, request: HttpRequest, now: float) -> tuple[str, str, str]:
    """Key id, signature and expiry time."""
    key_id, expires, signature = (
        request.param(name) or "" for name in (scheme.key_id, "Expires", "Signature")
    )
    if (
        not signature
        or not signature.isascii()
        or not (expires.isascii() and expires.isdecimal() and len(expires) <= 12)
    ):
        raise SignatureError(
            Problem.BAD_QUERY, f"A presigned URL needs {scheme.key_id}, Expires and Signature."
        )
    if now > int(expires):
        raise SignatureError(Problem.EXPIRED, "Request has expired.")
    if int(expires) > now + LONGEST_LIFE + SKEW:
        raise SignatureError(Problem.BAD_QUERY, f"Expires must be within {LONGEST_LIFE} seconds from now.")
    return key_id, signature, expires


def _in_header(scheme: Scheme, request: HttpRequest, now: float) -> tuple[str, str, str]:
    """Key id, signature and signed date, which is empty if the extension header has it."""
    word, _, rest = request.header("authorization").strip().partition(" ")
    key_id, _, signature = rest.strip().rpartition(":")
    if word != scheme.authorization or not key_id or not signature:
        raise SignatureError(
            Problem.BAD_HEADER,
            f"The Authorization header must be `{scheme.authorization} <key id>:<signature>`.",
        )
    extension, date = request.header(f"{scheme.prefix}date"), request.header("date").strip()
    if abs(now - _seconds(extension or date)) > SKEW:
        raise SignatureError(
            Problem.SKEWED, "The time of the request is more than 15 minutes from this server's clock."
        )
    return key_id, signature, "" if extension else date


def _seconds(date: str) -> float:
    """Raises SignatureError."""
    parsed = email.utils.parsedate_tz(date)
    try:
        return email.utils.mktime_tz(parsed) if parsed else parse_timestamp(date)
    except (ValueError, OverflowError, OSError):
        raise SignatureError(Problem.NO_TIME, "The request must have a time, in the header Date.") from None


def _headers_in_query(scheme: Scheme, request: HttpRequest) -> Pairs:
    """boto3 puts the headers that it has signed into the URL. They count as if the client had sent them."""
    sent = {name for name, _ in request.headers}
    return [
        (name, value)
        for name, value in request.query
        if (name.startswith(scheme.prefix) or name in ("content-md5", "content-type")) and name not in sent
    ]


def _extension_headers(scheme: Scheme, request: HttpRequest) -> str:
    names = sorted({name for name, _ in request.headers if name.startswith(scheme.prefix)})
    values = {
        name: ",".join(value.strip() for header, value in request.headers if header == name) for name in names
    }
    return "".join(f"{name}:{value}\n" for name, value in values.items())


def _resources(scheme: Scheme, request: HttpRequest, bucket: str) -> list[str]:
    """What the client may have signed: of a bucket some sign /bucket and some /bucket/, whatever they ask for."""
    signed = sorted(
        (name, value)
        for name, value in request.query
        if name.lower() in _SUBRESOURCES or (scheme is OBS and name.startswith(scheme.prefix))
    )
    query = "&".join(f"{name}={value}" if value else name for name, value in signed)
    path = (f"/{bucket}" if bucket else "") + request.path.decode("latin-1")
    paths = [path]
    if path.rstrip("/").count("/") == 1:
        paths = [path, path.rstrip("/") if path.endswith("/") else f"{path}/"]
    return [one + (f"?{query}" if query else "") for one in paths]
