"""Verifies SDK-HMAC-SHA256 signatures, which cover the request byte for byte.

A request can be replayed within the time window, as in the cloud.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import parse_qsl, quote_from_bytes, unquote_to_bytes

from turnout.access import Key
from turnout.access.authorization import parse_authorization
from turnout.dialects.modelarts.errors import BAD_SIGNATURE, SKEWED
from turnout.errors import Unauthenticated

ALGORITHM = "SDK-HMAC-SHA256"
WINDOW = 15 * 60
"""The largest difference between the clocks of client and server, in seconds."""

Find = Callable[[str], Key | None]
Headers = Mapping[bytes, bytes]

_EMPTY_HASH = hashlib.sha256(b"").hexdigest()
_UNSIGNED = "UNSIGNED-PAYLOAD"


class SignedRequest(NamedTuple):
    """The raw request that was signed."""

    method: str
    path: bytes
    query: bytes
    headers: Headers
    """Names in lower case."""
    body: bytes


class HeaderSignature(NamedTuple):
    """The signature and its parameters, from the headers."""

    key: Key
    date: str
    signed: str
    """The names of the signed headers."""
    signature: str


def read_signature(find: Find, headers: Headers, now: float) -> HeaderSignature:
    """Makes all checks that do not need the body. Raises Unauthenticated."""
    text = headers.get(b"authorization", b"").decode("latin-1")
    authorization = parse_authorization(text, ALGORITHM, "Access")
    if authorization is None:
        raise _failure(
            f"Authorization must be `{ALGORITHM} Access=<access key>, SignedHeaders=<names separated by ;>, "
            "Signature=<64 hexadecimal digits>`, or send X-Auth-Token"
        )
    signed = authorization.signed.lower()
    names = signed.split(";")
    if "host" not in names or "x-sdk-date" not in names:
        raise _failure("SignedHeaders must name host and x-sdk-date")
    date = _check_date(headers.get(b"x-sdk-date", b"").decode("latin-1").strip(), now)
    key = find(authorization.credential)
    if key is None:
        raise _failure(f"there is no access key {authorization.credential!r}")
    return HeaderSignature(key, date, signed, authorization.signature)


def verify(find: Find, request: SignedRequest, now: float) -> Key:
    """Returns the key that signed the request. Raises Unauthenticated."""
    key, date, signed, signature = read_signature(find, request.headers, now)
    names = signed.split(";")
    digest = _payload_hash(request, names)
    canonical = _canonical(request, names, signed, digest)
    to_sign = f"{ALGORITHM}\n{date}\n{hashlib.sha256(canonical).hexdigest()}".encode()
    expected = hmac.new(key.secret.encode(), to_sign, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), signature.encode("latin-1")):
        raise _failure(
            "the signature does not match: check the secret key, and whether a proxy changes the request"
        )
    return key


def _check_date(text: str, now: float) -> str:
    """Returns the date. Raises Unauthenticated if it is too far from the server's."""
    try:
        if not re.fullmatch(r"\d{8}T\d{6}Z", text, re.ASCII):
            raise ValueError
        at = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise _failure(f"X-Sdk-Date must be a UTC time like 20260131T235959Z, not {text!r}") from None
    if abs(now - at) > WINDOW:
        raise Unauthenticated(
            f"X-Sdk-Date {text} is {abs(now - at):.0f} s away from the server's clock; at most {WINDOW} s are allowed.",
            code=SKEWED,
        )
    return text


def _payload_hash(request: SignedRequest, names: list[str]) -> str:
    if not request.body:
        return _EMPTY_HASH  # the SDK signs it even if it declares UNSIGNED-PAYLOAD
    actual = hashlib.sha256(request.body).hexdigest()
    declared = request.headers.get(b"x-sdk-content-sha256", b"").decode("latin-1").strip()
    if declared in ("", actual):
        return actual
    if declared == _UNSIGNED and "x-sdk-content-sha256" in names:
        return _UNSIGNED  # the SDK sends it for all types but JSON
    raise _failure("X-Sdk-Content-Sha256 is not the SHA-256 of the body")


def _canonical(request: SignedRequest, names: list[str], signed: str, digest: str) -> bytes:
    lines = [
        name.encode("latin-1") + b":" + request.headers.get(name.encode("latin-1"), b"").strip()
        for name in names
    ]
    return b"\n".join(
        [
            request.method.encode(),
            _path(request.path),
            _query(request.query),
            *lines,
            b"",
            signed.encode("latin-1"),
            digest.encode(),
        ]
    )


def _path(raw: bytes) -> bytes:
    """Decodes the path before it splits it: an encoded slash is a separator too."""
    pieces = [quote_from_bytes(piece, safe="~") for piece in unquote_to_bytes(raw).split(b"/")]
    path = "/".join(pieces)
    return (path if path.endswith("/") else path + "/").encode()


def _query(raw: bytes) -> bytes:
    pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    encoded = sorted((name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs)
    return "&".join(f"{_percent_encode(name)}={_percent_encode(value)}" for name, value in encoded).encode()


def _percent_encode(value: bytes) -> str:
    return quote_from_bytes(value, safe="~")


def _failure(message: str) -> Unauthenticated:
    return Unauthenticated(f"Incorrect IAM authentication information: {message}.", code=BAD_SIGNATURE)
