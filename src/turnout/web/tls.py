"""Reads the TLS certificate of the service and its key."""

import hashlib
import ssl
from pathlib import Path
from typing import NamedTuple, NoReturn

from turnout.errors import Misconfigured


class CertificatePair(NamedTuple):
    """A certificate and its private key, both as PEM."""

    certificate: str
    key: str


def read(cert: Path, key: Path) -> CertificatePair:
    """Raises Misconfigured if a file is missing or the two do not belong together."""
    pair = CertificatePair(_text(cert, "cert"), _text(key, "key"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, lambda: _no_password(key))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise Misconfigured(
                f"[tls] key = {str(key)!r} does not belong to the certificate in {cert}"
            ) from None
        raise Misconfigured(
            f"[tls] cert = {str(cert)!r} and key = {str(key)!r} must be a certificate and its key, as PEM"
        ) from None
    return pair


def fingerprint(pair: CertificatePair) -> str:
    """The SHA-256 of the service's own certificate, which is the first in the file."""
    first = pair.certificate.partition("-----END CERTIFICATE-----")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first[0] + first[1] + "\n")).hexdigest()


def _text(path: Path, setting: str) -> str:
    try:
        return path.read_text("ascii")
    except OSError as error:
        raise Misconfigured(f"[tls] {setting} = {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Misconfigured(f"[tls] {setting} = {str(path)!r} is not PEM") from None


def _no_password(key: Path) -> NoReturn:
    raise Misconfigured(
        f"[tls] key = {str(key)!r} is encrypted, and the service cannot ask for a password: remove it "
        f"with openssl pkey -in {key} -out plain.pem"
    )
