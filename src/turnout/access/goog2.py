"""Google's V2-signed URLs, which are the default of google-cloud-storage.

The signature covers the method, the path, Content-MD5, Content-Type, all `x-goog-*` headers, and the query without the
parameters that Google leaves out. A URL has an expiry time but no start time. Like V4, it may be valid for at most
seven days.
"""

import base64
import binascii
from collections.abc import Callable
from urllib.parse import urlencode

from turnout.access import goog4
from turnout.access.keys import Key
from turnout.access.sigv4 import LONGEST_LIFE, SKEW, UNSIGNED, HttpRequest, Problem, SignatureError

ACCOUNT = "GoogleAccessId"

_NOT_SIGNED = frozenset(
    (ACCOUNT, "Expires", "Signature", "response-content-type", "response-content-disposition", "generation")
)


def verify(find: Callable[[str], Key | None], request: HttpRequest, now: float) -> tuple[Key, str]:
    """As `goog4.verify`."""
    email, expires, signature = (request.param(name) or "" for name in (ACCOUNT, "Expires", "Signature"))
    if not signature or not (expires.isascii() and expires.isdecimal() and len(expires) <= 12):
        raise SignatureError(Problem.BAD_QUERY, f"A signed URL needs {ACCOUNT}, Expires and Signature.")
    if now > int(expires):
        raise SignatureError(Problem.EXPIRED, "The URL has expired.")
    if int(expires) > now + LONGEST_LIFE + SKEW:
        raise SignatureError(Problem.BAD_QUERY, f"Expires must be within {LONGEST_LIFE} seconds from now.")
    key = goog4.find_account(find, email)
    try:
        proof = base64.b64decode(signature.encode(), validate=True)
    except (binascii.Error, ValueError):
        proof = b""
    goog4.check_signature(key, proof, _text(request, expires))
    return key, request.header("x-goog-content-sha256", UNSIGNED)


def _text(request: HttpRequest, expires: str) -> bytes:
    names = sorted({name for name, _ in request.headers if name.startswith("x-goog-")})
    extensions = (
        f"{name}:{','.join(' '.join(value.split()) for one, value in request.headers if one == name)}"
        for name in names
    )
    signed = sorted((name.lower(), value.strip()) for name, value in request.query if name not in _NOT_SIGNED)
    query = urlencode(signed, errors="surrogateescape")
    resource = request.path.decode("latin-1") + (f"?{query}" if query else "")
    lines = (
        request.method,
        request.header("content-md5").strip(),
        request.header("content-type").strip(),
        expires,
        *extensions,
        resource,
    )
    return "\n".join(lines).encode("utf-8", "surrogateescape")
