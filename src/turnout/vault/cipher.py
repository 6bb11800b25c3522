"""AES-256-GCM: data keys, how they are wrapped, and how they seal data.

Small data is sealed as a whole with a random nonce. Files and logs are sealed in numbered pieces; each file has its own
key, derived from the data key and a salt in the file.
"""

import base64
import binascii
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from turnout.vault.header import MARK, Header, read_header

KEY_SIZE = 32
_NONCE_SIZE = 12


class Unopenable(Exception):
    """The data was changed or truncated, belongs elsewhere, or has another key."""


class DataKey:
    """The data key of a job. `about` names a piece and its owner, so that no piece can replace another."""

    def __init__(self, header: Header, secret: bytes) -> None:
        self.header = header
        self.secret = secret
        self._small = AESGCM(_derived(secret, b"", b"turnout small"))

    def seal(self, data: bytes, about: str) -> bytes:
        nonce = os.urandom(_NONCE_SIZE)
        return self.header.encode() + nonce + self._small.encrypt(nonce, data, about.encode())

    def open(self, sealed: bytes, about: str) -> bytes:
        """Raises Unopenable."""
        found = read_header(sealed)
        if found is None:
            raise Unopenable
        begin = found[1] + _NONCE_SIZE
        try:
            return self._small.decrypt(sealed[found[1] : begin], sealed[begin:], about.encode())
        except (InvalidTag, ValueError):
            raise Unopenable from None

    def seal_text(self, text: str, about: str) -> str:
        """Replaces characters that cannot be encoded."""
        return MARK + base64.b64encode(self.seal(text.encode(errors="replace"), about)).decode()

    def for_file(self, salt: bytes, purpose: str) -> AESGCM:
        """The cipher for the pieces of the file with this salt."""
        return AESGCM(_derived(self.secret, salt, f"turnout {purpose}".encode()))


def sealed_bytes(text: str) -> bytes:
    """The sealed bytes of a text; empty if it is not sealed."""
    try:
        return base64.b64decode(text.removeprefix(MARK), validate=True)
    except (binascii.Error, ValueError):
        return b""


def make_data_key(name: str, master: bytes) -> DataKey:
    secret, nonce = os.urandom(KEY_SIZE), os.urandom(_NONCE_SIZE)
    return DataKey(Header(name, nonce + AESGCM(master).encrypt(nonce, secret, name.encode())), secret)


def unwrap(header: Header, master: bytes) -> DataKey:
    """Raises Unopenable."""
    nonce, wrapped = header.wrapped[:_NONCE_SIZE], header.wrapped[_NONCE_SIZE:]
    try:
        return DataKey(header, AESGCM(master).decrypt(nonce, wrapped, header.key.encode()))
    except (InvalidTag, ValueError):
        raise Unopenable from None


def _derived(secret: bytes, salt: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), KEY_SIZE, salt, purpose).derive(secret)
