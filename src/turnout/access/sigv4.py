"""AWS Signature Version 4, in the Authorization header or in a presigned URL.

Regions are not checked: clients choose any. Every `x-amz-*` header of a request must be signed. The path is encoded
once, as S3 does it; the other services of AWS encode it twice, which makes no difference for `/`.
"""

import calendar
import email.utils
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from turnout.access.authorization import SHA256_HEX, parse_authorization
from turnout.access.keys import Key
from turnout.errors import Unauthenticated

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
SKEW = 15 * 60
LONGEST_LIFE = 7 * 86400
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()

Pairs = list[tuple[str, str]]
"""Names and values of a query, decoded. Bytes that are not UTF-8 become surrogates."""

_TIMESTAMP = re.compile(r"(\d{8})T\d{6}Z", re.ASCII)
_SPACES = re.compile(r" +")


class Problem(Enum):
    BAD_HEADER = auto()
    BAD_QUERY = auto()
    EXPIRED = auto()
    MISMATCH = auto()
    NOT_SIGNED = auto()
    NO_PAYLOAD_HASH = auto()
    NO_TIME = auto()
    SKEWED = auto()
    UNKNOWN_KEY = auto()
    UNSIGNED_HEADERS = auto()


class SignatureError(Unauthenticated):
    """Each API has its own codes for the problems."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


class HttpRequest(NamedTuple):
    method: str
    path: bytes
    """As it was sent, without the query."""
    query: Pairs
    headers: list[tuple[str, str]]
    """Names in lower case."""

    def header(self, name: str, default: str = "") -> str:
        return next((value for header, value in self.headers if header == name), default)

    def param(self, name: str) -> str | None:
        return next((value for param, value in self.query if param == name), None)


def http_request(scope: Mapping[str, Any]) -> HttpRequest:
    """The request of an ASGI scope."""
    headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
    path = scope.get("raw_path") or scope["path"].encode()
    return HttpRequest(scope["method"], path.partition(b"?")[0], parse_query(scope["query_string"]), headers)


class Signed(NamedTuple):
    key: Key
    payload: str
    """What the client says about its body: a SHA-256 in hex, UNSIGNED-PAYLOAD or STREAMING-…"""
    chunks: "ChunkSigner"


class ChunkSigner(NamedTuple):
    """Signs the chunks of a streamed body: each signature covers the one before it."""

    signing_key: bytes
    timestamp: str
    scope: str
    signature: str

    def next(self, kind: str, *digests: str) -> str:
        text = "\n".join((f"{ALGORITHM}-{kind}", self.timestamp, self.scope, self.signature, *digests))
        return _mac(self.signing_key, text).hex()


class Claim(NamedTuple):
    """What a request says about its signature."""

    credential: str
    signed_headers: str
    signature: str
    timestamp: str
    payload: str


def parse_query(text: bytes) -> Pairs:
    pairs = (part.partition(b"=") for part in text.split(b"&") if part)
    return [(_text(name), _text(value)) for name, _, value in pairs]


def verify(find: Callable[[str], Key | None], request: HttpRequest, service: str, now: float) -> Signed:
    """`find` finds a key by its id; `service` is the one in the credential: `s3`. Raises SignatureError.

    The body is not checked here: its reader compares it with `payload`.
    """
    if request.param("X-Amz-Signature") is not None or request.param("X-Amz-Algorithm") is not None:
        claim = presigned(request, "Amz", ALGORITHM, now)
    else:
        claim = _in_header(request, now)
    key_id, _, scope = claim.credential.partition("/")
    key = find(key_id)
    # The signature is computed for unknown keys too, so that the response time reveals nothing.
    signing_key = signing_key_of(key, scope, claim.timestamp, service)
    canonical = canonical_request(request, claim, "Amz")
    to_sign = "\n".join((ALGORITHM, claim.timestamp, scope, hashlib.sha256(canonical).hexdigest()))
    key = check_signature(key, key_id, sign(signing_key, to_sign), claim.signature)
    return Signed(key, claim.payload, ChunkSigner(signing_key, claim.timestamp, scope, claim.signature))


def signing_key_of(key: Key | None, scope: str, timestamp: str, service: str) -> bytes:
    """`scope`: the credential without its key id. Raises SignatureError."""
    date, region, named, end = [*scope.split("/"), "", "", ""][:4]
    if (date, named, end) != (timestamp[:8], service, "aws4_request") or scope.count("/") != 3:
        raise SignatureError(
            Problem.BAD_HEADER,
            f"The credential must be <key id>/<date of the request>/<region>/{service}/aws4_request.",
        )
    return _signing_key(key.secret if key else "", date, region, service)


def check_signature(key: Key | None, key_id: str, expected: str, given: str) -> Key:
    """Raises SignatureError if there is no key or the signatures differ."""
    matches = hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))
    if key is None:
        raise SignatureError(Problem.UNKNOWN_KEY, f"There is no key with the id {key_id!r} here.")
    if not matches:
        raise SignatureError(
            Problem.MISMATCH,
            "The signature does not match this request and your secret key. Check the key and the signing method.",
        )
    return key


def _in_header(request: HttpRequest, now: float) -> Claim:
    text = request.header("authorization").strip()
    if not text:
        raise SignatureError(Problem.NOT_SIGNED, "Access denied: the request is not signed.")
    found = parse_authorization(text, ALGORITHM)
    if found is None or not SHA256_HEX.fullmatch(found.signature):
        raise SignatureError(
            Problem.BAD_HEADER,
            f"The Authorization header must be `{ALGORITHM} Credential=…, SignedHeaders=…, Signature=…`.",
        )
    payload = request.header("x-amz-content-sha256")
    if not payload:
        raise SignatureError(Problem.NO_PAYLOAD_HASH, "The header x-amz-content-sha256 is missing.")
    timestamp = request.header("x-amz-date") or _from_date(request.header("date"))
    if abs(now - parse_timestamp(timestamp)) > SKEW:
        raise SignatureError(
            Problem.SKEWED,
            "The time of the request is more than 15 minutes from this server's clock.",
        )
    return Claim(*found, timestamp, payload)


def presigned(request: HttpRequest, vendor: str, method: str, now: float) -> Claim:
    """The claim of a presigned URL. `vendor`: `Amz` or `Goog`; `method`: the algorithm. Raises SignatureError."""
    values = [
        request.param(f"X-{vendor}-{name}") or ""
        for name in ("Algorithm", "Credential", "SignedHeaders", "Signature", "Date", "Expires")
    ]
    algorithm, credential, signed, signature, timestamp, expires = values
    if algorithm != method or not all(values) or not expires.isascii() or not signature.isascii():
        raise SignatureError(
            Problem.BAD_QUERY,
            f"A presigned URL needs X-{vendor}-Algorithm={method}, -Credential, -Date, -Expires, -SignedHeaders and"
            " -Signature.",
        )
    if not expires.isdecimal() or not 1 <= len(expires) <= 6 or not 1 <= int(expires) <= LONGEST_LIFE:
        raise SignatureError(
            Problem.BAD_QUERY, f"X-{vendor}-Expires must be from 1 to {LONGEST_LIFE} seconds."
        )
    signed_at = parse_timestamp(timestamp)
    if signed_at - SKEW > now:
        raise SignatureError(Problem.SKEWED, "The presigned URL is not valid yet.")
    if now > signed_at + int(expires):
        raise SignatureError(Problem.EXPIRED, "Request has expired.")
    given = request.param(f"X-{vendor}-Content-Sha256") or request.header(
        f"x-{vendor.lower()}-content-sha256"
    )
    payload = given or UNSIGNED
    return Claim(credential, signed, signature, timestamp, payload)


def _from_date(text: str) -> str:
    """The time of a Date header, in the form of x-amz-date; the text itself if it is not a date."""
    parsed = email.utils.parsedate_tz(text)
    try:
        return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(email.utils.mktime_tz(parsed))) if parsed else text
    except (ValueError, OverflowError, OSError):
        return text


def parse_timestamp(timestamp: str) -> int:
    """Raises SignatureError."""
    try:
        if not _TIMESTAMP.fullmatch(timestamp):
            raise ValueError
        return calendar.timegm(time.strptime(timestamp, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise SignatureError(
            Problem.NO_TIME, "The request must have a time, as in x-amz-date: 20260102T030405Z, or a Date."
        ) from None


def canonical_request(request: HttpRequest, claim: Claim, vendor: str) -> bytes:
    """Raises SignatureError if a header that must be signed is not."""
    names = claim.signed_headers.split(";")
    extension = f"x-{vendor.lower()}-"
    unsigned = {name for name, _ in request.headers if name.startswith(extension)} - {*names}
    if request.param(f"X-{vendor}-Signature") is not None:
        unsigned.discard(f"{extension}content-sha256")
    if "host" not in names or unsigned:
        left_out = ", ".join(sorted(unsigned)) or "host"
        raise SignatureError(
            Problem.UNSIGNED_HEADERS, f"There were headers in the request that were not signed: {left_out}"
        )
    query = sorted(
        (_quote(name), _quote(value)) for name, value in request.query if name != f"X-{vendor}-Signature"
    )
    lines = [
        request.method,
        quote(unquote_to_bytes(request.path), safe="/-_.~"),
        "&".join(f"{name}={value}" for name, value in query),
        *(f"{name}:{_value(request, name)}" for name in names),
        "",
        claim.signed_headers,
        claim.payload,
    ]
    return "\n".join(lines).encode("latin-1", "replace")


def _value(request: HttpRequest, name: str) -> str:
    values = (_SPACES.sub(" ", value.strip()) for header, value in request.headers if header == name)
    return ",".join(values)


def _quote(text: str) -> str:
    return quote(text.encode("utf-8", "surrogateescape"), safe="-_.~")


def _text(value: bytes) -> str:
    return unquote_to_bytes(value).decode("utf-8", "surrogateescape")


@lru_cache(maxsize=256)
def _signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    key = _mac(b"AWS4" + secret.encode(), date)
    for part in (region, service, "aws4_request"):
        key = _mac(key, part)
    return key


def sign(signing_key: bytes, text: str) -> str:
    return _mac(signing_key, text).hex()


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode("utf-8", "surrogateescape"), "sha256")
