"""The signature of Tencent's COS (`q-sign-algorithm=sha1`), in the Authorization header or in a presigned URL."""

import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from turnout.access.keys import Key
from turnout.access.sigv4 import (
    LONGEST_LIFE,
    SKEW,
    HttpRequest,
    Problem,
    SignatureError,
    check_signature,
)

ALGORITHM = "q-sign-algorithm"

_NAMES = (ALGORITHM, "q-ak", "q-sign-time", "q-key-time", "q-header-list", "q-url-param-list", "q-signature")
_OPERATIONS = frozenset(("delete", "location", "partnumber", "uploadid", "uploads", "versioning"))
"""The query parameters that choose another operation or another part, in lower case."""


class _Claim(NamedTuple):
    key_id: str
    sign_time: str
    key_time: str
    headers: list[str]
    params: list[str]
    signature: str


def is_signed(request: HttpRequest) -> bool:
    return request.param(ALGORITHM) is not None or _header(request).startswith(f"{ALGORITHM}=")


def verify(find: Callable[[str], Key | None], request: HttpRequest, now: float, bucket: str = "") -> Key:
    """`bucket`: the bucket, if the host names it. Raises SignatureError.

    The signer chooses what is signed. Headers of COS must be, and in a presigned URL, which is made to be given away,
    what chooses the operation and the bucket.
    """
    claim = _claim(request)
    _check_time(claim, now)
    key = find(claim.key_id)
    # The signature is computed for unknown keys too, so that the response time reveals nothing.
    secret = (key.secret if key else "").encode()
    sign_key = hmac.new(secret, claim.key_time.encode(), "sha1").hexdigest().encode()
    expected = [
        hmac.new(sign_key, _to_sign(claim, request, host), "sha1").hexdigest() for host in _hosts(request)
    ]
    matching = [one for one in expected if hmac.compare_digest(one.encode(), claim.signature.encode())]
    key = check_signature(key, claim.key_id, (matching or expected)[0], claim.signature)
    _check_signed(claim, request, bucket)
    return key


def _header(request: HttpRequest) -> str:
    return request.header("authorization").strip()


def _claim(request: HttpRequest) -> _Claim:
    """Raises SignatureError."""
    text = _header(request)
    problem = Problem.BAD_HEADER if text else Problem.BAD_QUERY
    if text:
        pairs = (part.partition("=") for part in text.split("&"))
        found = {name: value for name, _, value in pairs}
    else:
        found = {name: request.param(name) or "" for name in _NAMES}
    algorithm, key_id, sign_time, key_time, headers, params, signature = (
        found.get(name, "") for name in _NAMES
    )
    if algorithm != "sha1" or not (key_id and sign_time and key_time and signature.isascii() and signature):
        raise SignatureError(
            problem,
            f"A signature of COS needs {ALGORITHM}=sha1, and {', '.join(_NAMES[1:4])} and q-signature.",
        )
    return _Claim(key_id, sign_time, key_time, _names(headers), _names(params), signature)


def _names(text: str) -> list[str]:
    names = (unquote_to_bytes(name).decode("utf-8", "surrogateescape") for name in text.split(";") if name)
    return [name.lower() for name in names]


def _check_time(claim: _Claim, now: float) -> None:
    """Raises SignatureError."""
    for text in (claim.sign_time, claim.key_time):
        begin, _, end = text.partition(";")
        if not all(one.isascii() and one.isdecimal() and len(one) <= 12 for one in (begin, end)):
            raise SignatureError(
                Problem.NO_TIME, "q-sign-time and q-key-time must be <begin>;<end>, in seconds since 1970."
            )
        if now < int(begin) - SKEW:
            raise SignatureError(Problem.SKEWED, "The signature is not valid yet.")
        if now > int(end):
            raise SignatureError(Problem.EXPIRED, "Request has expired.")
        if int(end) > now + LONGEST_LIFE + SKEW:
            raise SignatureError(
                Problem.BAD_QUERY, f"A signature must end within {LONGEST_LIFE} seconds from now."
            )


def _check_signed(claim: _Claim, request: HttpRequest, bucket: str) -> None:
    """Raises SignatureError for what was not signed, or could be read in two ways."""
    sent = [name.lower() for name, _ in request.query]
    twice = [name for name in claim.params if sent.count(name) > 1]
    if twice:
        raise SignatureError(Problem.BAD_QUERY, f"The parameter {twice[0]} is signed, and there twice.")
    # The gateway reads the names of S3, too.
    headers = {name for name, _ in request.headers if name.startswith(("x-cos-", "x-amz-"))}
    params: set[str] = set()
    if not _header(request):
        headers |= {"host"} if bucket else set()
        params = {*sent} & _OPERATIONS
    unsigned = (headers - {*claim.headers}) | (params - {*claim.params})
    if unsigned:
        raise SignatureError(
            Problem.UNSIGNED_HEADERS,
            "There were headers or parameters in the request that were not signed:"
            f" {', '.join(sorted(unsigned))}",
        )


def _hosts(request: HttpRequest) -> list[str]:
    """The host with its port, as it was sent, and without, as Tencent's Python SDK signs it."""
    host = request.header("host")
    return [host.rpartition(":")[0], host] if ":" in host else [host]


def _to_sign(claim: _Claim, request: HttpRequest, host: str) -> bytes:
    values = {name.lower(): value for name, value in reversed(request.query)}
    params = {name: values.get(name, "") for name in claim.params}
    headers = {name: host if name == "host" else request.header(name) for name in claim.headers}
    text = "\n".join((
        request.method.lower(),
        unquote_to_bytes(request.path).decode("utf-8", "surrogateescape"),
        _joined(params),
        _joined(headers),
        "",
    ))  # fmt: skip
    digest = hashlib.sha1(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
    return f"sha1\n{claim.sign_time}\n{digest}\n".encode()


def _joined(values: dict[str, str]) -> str:
    pairs = sorted((_quote(name).lower(), _quote(value)) for name, value in values.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def _quote(text: str) -> str:
    return quote(text.encode("utf-8", "surrogateescape"), safe="-_.~")
