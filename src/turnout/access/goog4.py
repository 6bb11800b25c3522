"""Google's V4-signed URLs: a service account signs them with its private key."""

import binascii
import hashlib
import re
from collections.abc import Callable

from turnout.access import google
from turnout.access.keys import Key
from turnout.access.sigv4 import HttpRequest, Problem, SignatureError, canonical_request, presigned
from turnout.errors import Unauthenticated

ALGORITHM = "GOOG4-RSA-SHA256"

_CREDENTIAL = re.compile(r"([^/]{1,200})/((\d{8})/[^/]{1,50}/storage/goog4_request)", re.ASCII)


def verify(find: Callable[[str], Key | None], request: HttpRequest, now: float) -> tuple[Key, str]:
    """The account's key, and the SHA-256 that the body must have, or UNSIGNED-PAYLOAD. Raises SignatureError."""
    claim = presigned(request, "Goog", ALGORITHM, now)
    found = _CREDENTIAL.fullmatch(claim.credential)
    if found is None or found[3] != claim.timestamp[:8]:
        raise SignatureError(
            Problem.BAD_QUERY,
            "X-Goog-Credential must be <e-mail of the account>/<date of the request>/auto/storage/goog4_request.",
        )
    email, scope = found[1], found[2]
    key = find_account(find, email)
    digest = hashlib.sha256(canonical_request(request, claim, "Goog")).hexdigest()
    text = "\n".join((ALGORITHM, claim.timestamp, scope, digest))
    try:
        proof = binascii.unhexlify(claim.signature)
    except (binascii.Error, ValueError):
        proof = b""
    check_signature(key, proof, text.encode())
    return key, claim.payload


def find_account(find: Callable[[str], Key | None], email: str) -> Key:
    """The key of the service account with this e-mail. Raises SignatureError."""
    key = find(email.partition("@")[0])
    if key is None or not key.public or google.account_of(key).email != email:
        raise SignatureError(Problem.UNKNOWN_KEY, "There is no such service account, or its key was revoked.")
    return key


def check_signature(key: Key, proof: bytes, signed: bytes) -> None:
    """Raises SignatureError."""
    try:
        google.verify(key.public, proof, signed)
    except (ValueError, Unauthenticated):
        message = "The signature does not match this request and the account's key."
        raise SignatureError(Problem.MISMATCH, message) from None
