"""Google service accounts: a file with an RSA private key, of which the service stores the public key.

The account's e-mail address begins with the id of its Turnout key. JWTs of the account (RS256) are checked by that id,
and are refused once the key is revoked.
"""

import base64
import binascii
import hashlib
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from turnout.access.keys import Key, Keys
from turnout.errors import Expired, Invalid, Unauthenticated

DOMAIN = "iam.gserviceaccount.com"
LONGEST_LIFE = 3600
SKEW = 300
SMALLEST, LARGEST = 2048, 8192
"""Bits of an RSA key."""
UNIVERSE = "turnout.invalid"
"""The domain of our accounts, in place of googleapis.com. No such domain can exist (RFC 2606)."""
_APIS = (".googleapis.com", f".{UNIVERSE}")


class ServiceAccount(NamedTuple):
    email: str
    key_id: str
    """`private_key_id` in the file, and `kid` in the header of a JWT."""
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


def account_of(key: Key) -> ServiceAccount:
    digest = hashlib.sha256(key.public)
    number = int.from_bytes(hashlib.sha256(key.id.encode()).digest()[:8])
    return ServiceAccount(
        f"{key.id}@{key.project}.{DOMAIN}", digest.hexdigest()[:40], f"1{number % 10**20:020d}"
    )


def read_public_key(pem: str) -> bytes:
    """The key as DER, to be stored. Raises Invalid."""
    # Imported only where service accounts are used.
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
    """The key of a self-signed JWT that is used as an access token. Raises Unauthenticated."""
    key, claims = _check(keys, token, now)
    if claims.sub and claims.sub != claims.iss:
        raise Unauthenticated("the JWT's sub must be its iss: impersonation is not supported")
    if not _is_api(claims.aud) and not (claims.scope and not claims.aud):
        raise Unauthenticated(f"the JWT's aud must be an address such as https://aiplatform{_APIS[0]}/")
    return key


def check_assertion(keys: Keys, token: str, now: float, audiences: tuple[str, ...]) -> Key:
    """The key of a JWT that requests an access token. Raises Unauthenticated."""
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
    signed, _, encoded = token.rpartition(".")
    head, _, body = signed.partition(".")
    try:
        header = msgspec.json.decode(_decode_part(head), type=_Header)
        claims = msgspec.json.decode(_decode_part(body), type=_Claims)
        signature = _decode_part(encoded)
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
    verify(key.public, signature, signed.encode("utf-8", "surrogatepass"))
    if not now - SKEW < claims.exp <= claims.iat + LONGEST_LIFE + SKEW or claims.iat > now + SKEW:
        raise Expired(
            f"the JWT has expired, is valid for more than {LONGEST_LIFE} s, or a clock is wrong: make a new one"
        )
    return key, claims


def verify(public: bytes, signature: bytes, signed: bytes) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

    key: Any = serialization.load_der_public_key(public)
    try:
        key.verify(signature, signed, PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        raise Unauthenticated("the JWT's signature does not match the service account's key") from None


def _decode_part(text: str) -> bytes:
    """Raises ValueError, also for a non-canonical encoding."""
    data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    if base64.urlsafe_b64encode(data).rstrip(b"=") != text.encode():
        raise ValueError("not canonical base64")
    return data
