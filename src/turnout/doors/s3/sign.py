"""Who asks: AWS Signature Version 4, in the Authorization header or in a presigned URL.

Regions are not checked: clients invent one. What a request says in `x-amz-*` headers must be signed.
"""

import calendar
import hashlib
import hmac
import re
import time
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from turnout.access import Key, Keys
from turnout.doors.s3.errors import S3Error

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
SKEW = 15 * 60
LONGEST_LIFE = 7 * 86400
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()

Pairs = list[tuple[str, str]]
"""Names and values of a query, decoded; bytes that are no text as surrogates."""

_AUTHORIZATION = re.compile(
    rf"{ALGORITHM}\s+Credential=([^,\s]+)\s*,\s*SignedHeaders=([^,\s]+)\s*,\s*Signature=([0-9a-f]{{64}})",
    re.ASCII,
)
_STAMP = re.compile(r"(\d{8})T\d{6}Z", re.ASCII)
_SPACES = re.compile(r" +")


class Asked(NamedTuple):
    method: str
    path: bytes
    """As it was sent, without the query."""
    query: Pairs
    headers: list[tuple[str, str]]
    """Names in lower case."""

    def header(self, name: str, default: str = "") -> str:
        return next((value for one, value in self.headers if one == name), default)

    def param(self, name: str) -> str | None:
        return next((value for one, value in self.query if one == name), None)


class Signed(NamedTuple):
    key: Key
    payload: str
    """What the client says about its body: a SHA-256 in hex, UNSIGNED-PAYLOAD or STREAMING-…"""
    chain: "Chain"


class Chain(NamedTuple):
    """What the signatures of a body's chunks are made with."""

    signing_key: bytes
    stamp: str
    scope: str
    signature: str

    def next(self, kind: str, *digests: str) -> str:
        text = "\n".join((f"{ALGORITHM}-{kind}", self.stamp, self.scope, self.signature, *digests))
        return _mac(self.signing_key, text).hex()


class _Claim(NamedTuple):
    credential: str
    signed_headers: str
    signature: str
    stamp: str
    payload: str


def parse_query(text: bytes) -> Pairs:
    pairs = (part.partition(b"=") for part in text.split(b"&") if part)
    return [(_text(name), _text(value)) for name, _, value in pairs]


def verify(keys: Keys, asked: Asked, now: float) -> Signed:
    """Raises S3Error. The body is not looked at: whoever reads it holds it against `payload`."""
    if asked.param("X-Amz-Signature") is not None or asked.param("X-Amz-Algorithm") is not None:
        claim = _presigned(asked, now)
    else:
        claim = _in_header(asked, now)
    key_id, _, scope = claim.credential.partition("/")
    date, region, service, end = [*scope.split("/"), "", "", ""][:4]
    if (date, service, end) != (claim.stamp[:8], "s3", "aws4_request") or scope.count("/") != 3:
        raise S3Error(
            "AuthorizationHeaderMalformed",
            "The credential must be <key id>/<date of the request>/<region>/s3/aws4_request.",
        )
    key = keys.find(key_id)
    # The signature is computed for unknown keys too, so that the time it takes tells nothing.
    signing_key = _signing_key(key.secret if key else "", date, region)
    request = _canonical(asked, claim)
    to_sign = "\n".join((ALGORITHM, claim.stamp, scope, hashlib.sha256(request).hexdigest()))
    fits = hmac.compare_digest(_mac(signing_key, to_sign).hex(), claim.signature)
    if key is None:
        raise S3Error("InvalidAccessKeyId", f"There is no key with the id {key_id!r} here.")
    if not fits:
        raise S3Error(
            "SignatureDoesNotMatch",
            "The signature is not the one that this request and your secret key give. Check key and signing method.",
        )
    return Signed(key, claim.payload, Chain(signing_key, claim.stamp, scope, claim.signature))


def _in_header(asked: Asked, now: float) -> _Claim:
    text = asked.header("authorization").strip()
    if text.startswith("AWS ") or asked.param("AWSAccessKeyId") is not None:
        # What boto3 does for presigned URLs unless it is told otherwise.
        raise S3Error(
            "InvalidRequest",
            "Signature version 2 is not supported: sign with AWS4-HMAC-SHA256, "
            'which in boto3 is Config(signature_version="s3v4").',
        )
    if not text:
        raise S3Error("AccessDenied", "Access denied: the request is not signed.")
    match = _AUTHORIZATION.fullmatch(text)
    if match is None:
        raise S3Error(
            "AuthorizationHeaderMalformed",
            f"The Authorization header must be `{ALGORITHM} Credential=…, SignedHeaders=…, Signature=…`.",
        )
    payload = asked.header("x-amz-content-sha256")
    if not payload:
        raise S3Error("InvalidRequest", "The header x-amz-content-sha256 is missing.")
    stamp = asked.header("x-amz-date")
    if abs(now - _seconds(stamp)) > SKEW:
        raise S3Error(
            "RequestTimeTooSkewed",
            "The time of the request is more than 15 minutes from this server's clock.",
        )
    return _Claim(match[1], match[2], match[3], stamp, payload)


def _presigned(asked: Asked, now: float) -> _Claim:
    values = [
        asked.param(f"X-Amz-{name}") or ""
        for name in ("Algorithm", "Credential", "SignedHeaders", "Signature", "Date", "Expires")
    ]
    algorithm, credential, signed, signature, stamp, expires = values
    if algorithm != ALGORITHM or not all(values) or not expires.isascii() or not signature.isascii():
        raise S3Error(
            "AuthorizationQueryParametersError",
            "A presigned URL needs X-Amz-Algorithm, -Credential, -Date, -Expires, -SignedHeaders and -Signature.",
        )
    if not expires.isdecimal() or not 1 <= len(expires) <= 6 or not 1 <= int(expires) <= LONGEST_LIFE:
        raise S3Error(
            "AuthorizationQueryParametersError", f"X-Amz-Expires must be from 1 to {LONGEST_LIFE} seconds."
        )
    made = _seconds(stamp)
    if made - SKEW > now:
        raise S3Error("RequestTimeTooSkewed", "The presigned URL is not valid yet.")
    if now > made + int(expires):
        raise S3Error("AccessDenied", "Request has expired.")
    payload = asked.param("X-Amz-Content-Sha256") or asked.header("x-amz-content-sha256") or UNSIGNED
    return _Claim(credential, signed, signature, stamp, payload)


def _seconds(stamp: str) -> int:
    try:
        if not _STAMP.fullmatch(stamp):
            raise ValueError
        return calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise S3Error(
            "AccessDenied", "The request must have a time, as in x-amz-date: 20260102T030405Z."
        ) from None


def _canonical(asked: Asked, claim: _Claim) -> bytes:
    names = claim.signed_headers.split(";")
    unsigned = {name for name, _ in asked.headers if name.startswith("x-amz-")} - {*names}
    if asked.param("X-Amz-Signature") is not None:
        unsigned.discard("x-amz-content-sha256")
    if "host" not in names or unsigned:
        left_out = ", ".join(sorted(unsigned)) or "host"
        raise S3Error("AccessDenied", f"There were headers in the request that were not signed: {left_out}")
    query = sorted((_quote(name), _quote(value)) for name, value in asked.query if name != "X-Amz-Signature")
    lines = [
        asked.method,
        quote(unquote_to_bytes(asked.path), safe="/-_.~"),
        "&".join(f"{name}={value}" for name, value in query),
        *(f"{name}:{_value(asked, name)}" for name in names),
        "",
        claim.signed_headers,
        claim.payload,
    ]
    return "\n".join(lines).encode("latin-1", "replace")


def _value(asked: Asked, name: str) -> str:
    values = (_SPACES.sub(" ", value.strip()) for one, value in asked.headers if one == name)
    return ",".join(values)


def _quote(text: str) -> str:
    return quote(text.encode("utf-8", "surrogateescape"), safe="-_.~")


def _text(value: bytes) -> str:
    return unquote_to_bytes(value).decode("utf-8", "surrogateescape")


@lru_cache(maxsize=256)
def _signing_key(secret: str, date: str, region: str) -> bytes:
    key = _mac(b"AWS4" + secret.encode(), date)
    for part in (region, "s3", "aws4_request"):
        key = _mac(key, part)
    return key


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode("utf-8", "surrogateescape"), "sha256")
