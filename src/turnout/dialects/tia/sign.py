"""Verifies signatures v3 (TC3-HMAC-SHA256) and v1 (HmacSHA1, HmacSHA256).

Clients of different years sign different texts. `_hosts`, `_header_cases` and `_boolean_spellings` accept these
variants and give the reason for each. A request can be replayed within the time window: nonces are not stored.
"""

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from turnout.access import Key
from turnout.access.authorization import SHA256_HEX, parse_authorization
from turnout.dialects.tia import wire
from turnout.dialects.tia.errors import (
    BAD_AUTHORIZATION,
    BAD_SIGNATURE,
    EXPIRED,
    INVALID,
    UNKNOWN_KEY,
    missing,
)
from turnout.errors import Invalid, Unauthenticated

WINDOW = 300
"""Seconds by which a client's clock may differ."""

ALGORITHM = "TC3-HMAC-SHA256"
Find = Callable[[str], Key | None]
Pairs = Sequence[tuple[str, str]]
Headers = Mapping[bytes, bytes]

_CREDENTIAL = re.compile(r"([^/\s]+)/(\d{4}-\d\d-\d\d)/([^/\s]+)/tc3_request", re.ASCII)
_HEADER_NAMES = re.compile("[a-z0-9;-]+")
_UNSIGNED = b"UNSIGNED-PAYLOAD"
_EMPTY_HASH = hashlib.sha256(b"").hexdigest()


class V3Signature(NamedTuple):
    """The signature in the headers of a v3 request."""

    key: Key
    date: str
    service: str
    signed: str
    """The names of the signed headers."""
    signature: str
    timestamp: int


def read_v3(find: Find, headers: Headers, now: float) -> V3Signature:
    """Checks everything that does not need the body. Raises Unauthenticated with TI-A's code."""
    found = parse_authorization(headers.get(b"authorization", b"").decode("latin-1"), ALGORITHM)
    credential = _read_credential(found.credential) if found else None
    if (
        found is None
        or credential is None
        or not _HEADER_NAMES.fullmatch(found.signed)
        or not SHA256_HEX.fullmatch(found.signature)
    ):
        raise _failure(
            BAD_AUTHORIZATION,
            f"The Authorization header must be `{ALGORITHM} Credential=<SecretId>/<date>/<service>/tc3_request, "
            "SignedHeaders=content-type;host, Signature=<64 hex digits>`.",
        )
    key_id, date, service = credential
    names = found.signed.split(";")
    if "host" not in names or "content-type" not in names:
        raise _failure(BAD_AUTHORIZATION, "SignedHeaders must name content-type and host.")
    timestamp = _check_timestamp(headers.get(b"x-tc-timestamp", b"").decode("latin-1"), "X-TC-Timestamp", now)
    key = find_key(find, key_id)
    if date != _date(timestamp // 86400):
        raise _failure(BAD_SIGNATURE, f"The date {date} in Credential is not the UTC date of X-TC-Timestamp.")
    return V3Signature(key, date, service, found.signed, found.signature, timestamp)


def verify_v3(found: V3Signature, method: str, query: bytes, headers: Headers, body: bytes) -> Key:
    """The key that signed the request; raises Unauthenticated with TI-A's code."""
    key, date, service, signed, signature, timestamp = found
    names = signed.split(";")
    digest = _payload_hash(method, headers, body)
    head = f"{method}\n/\n{query.decode('latin-1') if method == 'GET' else ''}\n"
    tail = f"\n{signed}\n{digest}"
    scope = f"{ALGORITHM}\n{timestamp}\n{date}/{service}/tc3_request\n"
    signing_key = _signing_key(key.secret, date, service)
    for canonical in _canonical_headers(names, headers):
        request = (head + canonical + tail).encode("latin-1")
        to_sign = scope + hashlib.sha256(request).hexdigest()
        expected = hmac.digest(signing_key, to_sign.encode("latin-1"), "sha256").hex()
        if hmac.compare_digest(expected, signature):
            return key
    raise _mismatch()


def verify_v1(find: Find, method: str, host: str, pairs: Pairs, now: float) -> Key:
    """The key that signed the request. `pairs`: its decoded parameters; invalid UTF-8 is in surrogates."""
    parameters = dict(pairs)
    for name in ("SecretId", "Timestamp", "Nonce", "Signature"):
        if not parameters.get(name):
            raise missing(name)
    if not _is_count(parameters["Nonce"]):
        raise Invalid("Nonce must be a positive integer.", field="Nonce", code=INVALID)
    _check_timestamp(parameters["Timestamp"], "Timestamp", now)
    key = find_key(find, parameters["SecretId"])
    digest = "sha256" if parameters.get("SignatureMethod") == "HmacSHA256" else "sha1"
    secret, signature = key.secret.encode(), parameters["Signature"].encode("utf-8", "surrogateescape")
    for pairs_signed in _boolean_spellings([pair for pair in pairs if pair[0] != "Signature"]):
        joined = "&".join(f"{name}={value}" for name, value in sorted(pairs_signed))
        for name in _hosts(host):
            text = f"{method}{name}/?{joined}".encode("utf-8", "surrogateescape")
            if hmac.compare_digest(base64.b64encode(hmac.digest(secret, text, digest)), signature):
                return key
    raise _mismatch()


def _check_timestamp(text: str, field: str, now: float) -> int:
    if not text:
        raise missing(field)
    if not _is_count(text):
        raise Invalid(f"{field} must be the time in whole seconds since 1970, not {text!r}.", field=field)
    timestamp = int(text)
    if abs(now - timestamp) > WINDOW:
        raise _failure(
            EXPIRED,
            f"{field} {timestamp} is {abs(now - timestamp):.0f} s away from this server's clock "
            f"({now:.0f}); {WINDOW} s are allowed.",
        )
    return timestamp


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


def find_key(find: Find, key_id: str) -> Key:
    key = find(key_id)
    if key is None:
        raise _failure(UNKNOWN_KEY, f"There is no key with the SecretId {key_id!r} here.")
    return key


@lru_cache(maxsize=256)
def _read_credential(text: str) -> tuple[str, ...] | None:
    """SecretId, date and service; a client sends the same for a day."""
    match = _CREDENTIAL.fullmatch(text)
    return match and match.groups()


@lru_cache(maxsize=16)
def _date(day: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(day * 86400))


@lru_cache(maxsize=1024)
def _signing_key(secret: str, date: str, service: str) -> bytes:
    key = b"TC3" + secret.encode()
    for part in (date, service, "tc3_request"):
        key = hmac.digest(key, part.encode("latin-1"), "sha256")
    return key


def _payload_hash(method: str, headers: Headers, body: bytes) -> str:
    if headers.get(b"x-tc-content-sha256") == _UNSIGNED:
        return hashlib.sha256(_UNSIGNED).hexdigest()
    return _EMPTY_HASH if method == "GET" else hashlib.sha256(body).hexdigest()


def _canonical_headers(names: list[str], headers: Headers) -> Iterator[str]:
    for host in _hosts(headers.get(b"host", b"").decode("latin-1").strip()):
        lines = [
            (name, host if name == "host" else headers.get(name.encode(), b"").decode("latin-1").strip())
            for name in names
        ]
        yield from _header_cases(lines)


def _hosts(host: str) -> Iterator[str]:
    """As received, which for tccli is `http://127.0.0.1:8470`; then without the port, which Node does not sign."""
    yield host
    bare = re.sub(r":\d+$", "", host)
    if bare != host:
        yield bare


def _header_cases(lines: list[tuple[str, str]]) -> Iterator[str]:
    """In lower case, as the documentation requires; then as received, because the SDKs do not change the case."""
    text = "".join(f"{name}:{value}\n" for name, value in lines)
    lower = text.lower()
    yield lower
    if lower != text:
        yield text


def _boolean_spellings(pairs: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """As received; then with `True` for `true`: the asynchronous Python client signs one and sends the other."""
    yield pairs
    capital = [(name, value.capitalize() if name in wire.BOOLEANS else value) for name, value in pairs]
    if capital != pairs:
        yield capital


def _failure(code: str, message: str) -> Unauthenticated:
    return Unauthenticated(message, code=code)


def _mismatch() -> Unauthenticated:
    return _failure(
        BAD_SIGNATURE,
        "The provided credentials could not be validated. Please check your signature is correct.",
    )
