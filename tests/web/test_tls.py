"""Problems of the certificate and its key are reported before the service starts."""

import hashlib
import re
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from tests.certificates import make_certificate
from turnout.errors import Misconfigured
from turnout.web import tls


def test_a_pair_is_read(tmp_path: Path):
    files = make_certificate(tmp_path)
    pair = tls.read(files.cert, files.key)
    assert pair == (files.cert.read_text(), files.key.read_text())


def test_a_missing_file_is_named(tmp_path: Path):
    files = make_certificate(tmp_path)
    with pytest.raises(Misconfigured, match=r"\[tls\] cert = '.*/none.pem' cannot be read: No such file"):
        tls.read(tmp_path / "none.pem", files.key)
    with pytest.raises(Misconfigured, match=r"\[tls\] key = '.*' cannot be read: Is a directory"):
        tls.read(files.cert, tmp_path)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path):
    (tmp_path / "other").mkdir()
    files, other = make_certificate(tmp_path), make_certificate(tmp_path / "other")
    with pytest.raises(
        Misconfigured, match="does not belong to the certificate in " + re.escape(str(files.cert))
    ):
        tls.read(files.cert, other.key)


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe"])
def test_a_file_that_is_not_pem_is_refused(tmp_path: Path, content: bytes):
    files = make_certificate(tmp_path)
    (tmp_path / "bad.pem").write_bytes(content)
    with pytest.raises(Misconfigured, match="PEM"):
        tls.read(tmp_path / "bad.pem", files.key)
    with pytest.raises(Misconfigured, match="PEM"):
        tls.read(files.cert, tmp_path / "bad.pem")


def test_an_encrypted_key_is_refused_without_a_prompt(tmp_path: Path):
    files = make_certificate(tmp_path)
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    form = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    with pytest.raises(Misconfigured, match=r"is encrypted.* openssl pkey"):
        tls.read(files.cert, files.key)


def test_the_fingerprint_is_that_of_the_first_certificate(tmp_path: Path):
    files = make_certificate(tmp_path)
    pair = tls.read(files.cert, files.key)
    der = ssl.PEM_cert_to_DER_cert(pair.certificate[: pair.certificate.index("-----END") + 26])
    assert tls.fingerprint(pair) == hashlib.sha256(der).hexdigest()
