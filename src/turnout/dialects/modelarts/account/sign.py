"""Who asks: SDK-HMAC-SHA256 over the request as it came, byte for byte.

A request is replayable within the time window, as it is in the cloud.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import parse_qsl, quote_from_bytes, unquote_to_bytes

from turnout.access import Key
from turnout.dialects.modelarts.errors import BAD_SIGNATURE, SKEWED
from turnout.errors import Unauthenticated

ALGORITHM = "SDK-HMAC-SHA256"
WINDOW = 15 * 60
"""Seconds that a client's clock may be off."""

Find = Callable[[str], Key | None]
Headers = Mapping[bytes, bytes]

_EMPTY_HASH = hashlib.sha256(b"").hexdigest()
_UNSIGNED = "UNSIGNED-PAYLOAD"


class Signed(NamedTuple):
    """What was signed: the head of a request as it stood on the wire, and its body."""

    method: str
    path: bytes
    query: bytes
    headers: Headers
    """Names in lower case."""
    body: bytes


class _Authorization(NamedTuple):
    access: str
    signed: str
    signature: str


def access_of(headers: Headers) -> str:
    """The key id that a request names; empty if it is not signed this way."""
    found = _parse(headers)
    return found.access if found else ""


def verify(find: Find, request: Signed, now: float) -> Key:
    """The key that signed the request; raises Unauthenticated."""
    authorization = _parse(request.headers)
    if authorization is None:
        raise _failure(
            f"Authorization must be `{ALGORITHM} Access=<access key>, SignedHeaders=<names with ; between them>, "
            "Signature=<64 hexadecimal digits>`, or send X-Auth-Token"
        )
    names = authorization.signed.split(";")
    if "host" not in names or "x-sdk-date" not in names:
        raise _failure("SignedHeaders must name host and x-sdk-date")
    date = _fresh(request.headers.get(b"x-sdk-date", b"").decode("latin-1").strip(), now)
    key = find(authorization.access)
    if key is None:
        raise _failure(f"there is no access key {authorization.access!r} here")
    digest = _payload_hash(request, names)
    canonical = _canonical(request, names, authorization.signed, digest)
    to_sign = f"{ALGORITHM}\n{date}\n{hashlib.sha256(canonical).hexdigest()}".encode()
    expected = hmac.new(key.secret.encode(), to_sign, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), authorization.signature.encode("latin-1")):
        raise _failure(
            "the signature does not match: check the secret key and that nothing changed on the way"
        )
    return key


def _parse(headers: Headers) -> _Authorization | None:
    scheme, _, rest = headers.get(b"authorization", b"").decode("latin-1").strip().partition(" ")
    if scheme != ALGORITHM:
        return None
    pairs = (part.strip().partition("=") for part in rest.split(","))
    found = {name: value for name, _, value in pairs}
    try:
        return _Authorization(found["Access"], found["SignedHeaders"].lower(), found["Signature"])
    except KeyError:
        return None


def _fresh(text: str, now: float) -> str:
    """The date, which must be near ours."""
    try:
        if not re.fullmatch(r"\d{8}T\d{6}Z", text, re.ASCII):
            raise ValueError
        at = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise _failure(f"X-Sdk-Date must be a UTC time like 20260131T235959Z, not {text!r}") from None
    if abs(now - at) > WINDOW:
        raise Unauthenticated(
            f"X-Sdk-Date {text} is {abs(now - at):.0f} s away from this server's clock; {WINDOW} s are allowed.",
            code=SKEWED,
        )
    return text


def _payload_hash(request: Signed, names: list[str]) -> str:
    if not request.body:
        return _EMPTY_HASH
    actual = hashlib.sha256(request.body).hexdigest()
    told = request.headers.get(b"x-sdk-content-sha256", b"").decode("latin-1").strip()
    if told in ("", actual):
        return actual
    if told == _UNSIGNED and "x-sdk-content-sha256" in names:
        # The SDK says so of every type but JSON, and signs the hash of nothing all the same where there is no body.
        return _UNSIGNED if request.body else actual
    raise _failure("X-Sdk-Content-Sha256 is not the SHA-256 of the body")


def _canonical(request: Signed, names: list[str], signed: str, digest: str) -> bytes:
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
    """Decoded as a whole before it is split: an encoded slash counts as a separator."""
    pieces = [quote_from_bytes(piece, safe="~") for piece in unquote_to_bytes(raw).split(b"/")]
    path = "/".join(pieces)
    return (path if path.endswith("/") else path + "/").encode()


def _query(raw: bytes) -> bytes:
    pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    spelt = sorted((value.encode("latin-1"), other.encode("latin-1")) for value, other in pairs)
    return "&".join(f"{_spell(name)}={_spell(value)}" for name, value in spelt).encode()


def _spell(value: bytes) -> str:
    return quote_from_bytes(value, safe="~")


def _failure(message: str) -> Unauthenticated:
    return Unauthenticated(f"Incorrect IAM authentication information: {message}.", code=BAD_SIGNATURE)
