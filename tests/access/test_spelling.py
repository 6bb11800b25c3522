"""Every token is accepted only in its canonical encoding."""

import time
from collections.abc import Callable
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import crypt, jwt
from hypothesis import given
from hypothesis import strategies as st

from turnout.access import Key, Keys, check_token, make_token
from turnout.access.google import account_of, check_access_jwt, read_public_key
from turnout.access.links import check_link, make_link
from turnout.access.sessions import check_session_token, make_session_token
from turnout.errors import Denied, TurnoutError, Unauthenticated

NOW = time.time()
_PRIVATE = rsa.generate_private_key(65537, 2048)


def _public() -> bytes:
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    return read_public_key(_PRIVATE.public_key().public_bytes(serialization.Encoding.PEM, kind).decode())


KEY = Key("AKIDx", "a long secret", "vision", public=_public())
ROOT = Key("root", "another secret", "default", root=True)


class Known(NamedTuple):
    token: str
    check: Callable[[str], object]
    refusal: type[TurnoutError]


def _keys() -> Keys:
    keys = Keys(ROOT)
    keys._keys[KEY.id] = KEY
    return keys


def _jwt() -> str:
    account = account_of(KEY)
    claims = {"iss": account.email, "sub": account.email, "iat": int(NOW), "exp": int(NOW) + 3600}
    claims["aud"] = "https://aiplatform.googleapis.com/"
    pem = _PRIVATE.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return jwt.encode(crypt.RSASigner.from_string(pem, account.key_id), claims).decode()


_LINK = make_link(ROOT, ("log", "vision", "1", "master-0"), NOW)


def _check_link(text: str) -> None:
    expires, _, signature = text.partition("&")
    check_link(ROOT, ("log", "vision", "1", "master-0"), expires, signature, NOW)


TOKENS = {
    "bearer": Known(make_token(KEY, NOW), lambda text: check_token(_keys(), text, NOW), Unauthenticated),
    "session": Known(
        make_session_token(KEY, "vision", NOW),
        lambda text: check_session_token(_keys(), text, NOW),
        Unauthenticated,
    ),
    "jwt": Known(_jwt(), lambda text: check_access_jwt(_keys(), text, NOW), Unauthenticated),
    "link": Known(f"{_LINK.expires}&{_LINK.signature}", _check_link, Denied),
}
kinds = pytest.mark.parametrize("kind", TOKENS)


@kinds
def test_as_it_was_made(kind: str) -> None:
    TOKENS[kind].check(TOKENS[kind].token)


@kinds
@pytest.mark.parametrize("more", [".x", "x", ".", "=", " ", "\n", "\0", "é", "==", "&"])
def test_with_something_before_or_behind_it(kind: str, more: str) -> None:
    token, check, refusal = TOKENS[kind]
    for changed in (token + more, more + token):
        with pytest.raises(refusal):
            check(changed)


@kinds
@given(at=st.integers(0, 2000), cut=st.integers(0, 2), put=st.text(max_size=2))
def test_with_any_change(kind: str, at: int, cut: int, put: str) -> None:
    token, check, refusal = TOKENS[kind]
    at %= len(token) + 1
    changed = token[:at] + put + token[at + cut :]
    if changed != token:
        with pytest.raises(refusal):
            check(changed)


@kinds
def test_the_last_letter(kind: str) -> None:
    """Some of its bits mean nothing in base64."""
    token, check, refusal = TOKENS[kind]
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
        if letter != token[-1]:
            with pytest.raises(refusal):
                check(token[:-1] + letter)
