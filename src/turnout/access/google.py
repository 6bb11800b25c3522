"""Service accounts as Google's libraries know them: a file with an RSA key, whose public half the service keeps.

The account's address begins with the id of the key that it stands for, and the key's secret never leaves the service:
what the account signs (RS256) is looked up by that id, and ends with the key.
"""

import base64
import binascii
import hashlib
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from turnout.access.keys import Key, Keys
from turnout.errors import Invalid, Unauthenticated

DOMAIN = "iam.gserviceaccount.com"
LONGEST_LIFE = 3600
SKEW = 300
SMALLEST, LARGEST = 2048, 8192
"""Bits of an RSA key."""
_APIS = ".googleapis.com"


class Account(NamedTuple):
    email: str
    key_id: str
    """What the file calls private_key_id, and the header of what is signed `kid`."""
    client_id: str


class _Header(msgspec.Struct):
    alg: str
    kid: str = ""


class _Claims(msgspec.Struct):
    iss: str
    exp: float
    iat: float
    aud: str = ""
    scope: str = ""
    sub: str = ""


def account_of(key: Key) -> Account:
    digest = hashlib.sha256(key.public)
    number = int.from_bytes(hashlib.sha256(key.id.encode()).digest()[:8])
    return Account(f"{key.id}@{key.project}.{DOMAIN}", digest.hexdigest()[:40], f"1{number % 10**20:020d}")


def read_public_key(pem: str) -> bytes:
    """What is kept of it. Raises Invalid."""
    # Nobody who has no service account pays for it.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        key = serialization.load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPublicKey) or not SMALLEST <= key.key_size <= LARGEST:
        raise Invalid(
            f"public_key must be an RSA key of {SMALLEST} to {LARGEST} bits in PEM", field="public_key"
        )
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def check_access_jwt(keys: Keys, token: str, now: float) -> Key:
    """The key of who signed a token to be let in with, without asking for one. Raises Unauthenticated."""
    key, claims = _check(keys, token, now)
    if claims.sub and claims.sub != claims.iss:
        raise Unauthenticated("the JWT's sub must be its iss: nobody can speak for another here")
    if not _is_api(claims.aud) and not (claims.scope and not claims.aud):
        raise Unauthenticated(f"the JWT's aud must be an address such as https://aiplatform{_APIS}/")
    return key


def check_assertion(keys: Keys, token: str, now: float, audiences: tuple[str, ...]) -> Key:
    """The key of who asks for a token. Raises Unauthenticated."""
    key, claims = _check(keys, token, now)
    if claims.aud not in audiences:
        raise Unauthenticated(f"the JWT's aud must be {audiences[0]}")
    return key


def _is_api(audience: str) -> bool:
    try:
        address = urlsplit(audience)
        return address.scheme == "https" and (address.hostname or "").endswith(_APIS)
    except ValueError:
        return False


def _check(keys: Keys, token: str, now: float) -> tuple[Key, _Claims]:
    signed, _, signature = token.rpartition(".")
    head, _, body = signed.partition(".")
    try:
        header = msgspec.json.decode(_unspell(head), type=_Header)
        claims = msgspec.json.decode(_unspell(body), type=_Claims)
        proof = _unspell(signature)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        raise Unauthenticated("the JWT cannot be read") from None
    if header.alg != "RS256":
        raise Unauthenticated(f"the JWT must be signed with RS256, not {header.alg[:20]}")
    key = keys.find(claims.iss.partition("@")[0])
    account = account_of(key) if key and key.public else None
    if (
        key is None
        or account is None
        or claims.iss != account.email
        or header.kid not in ("", account.key_id)
    ):
        raise Unauthenticated("no such service account, or its key was revoked")
    _verify(key.public, proof, signed.encode("utf-8", "surrogatepass"))
    if not now - SKEW < claims.exp <= claims.iat + LONGEST_LIFE + SKEW or claims.iat > now + SKEW:
        raise Unauthenticated(
            f"the JWT has expired, lives longer than {LONGEST_LIFE} s, or a clock is off: make a new one"
        )
    return key, claims


def _verify(public: bytes, proof: bytes, signed: bytes) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

    key: Any = serialization.load_der_public_key(public)
    try:
        key.verify(proof, signed, PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        raise Unauthenticated("the JWT's signature does not fit the service account's key") from None


def _unspell(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
