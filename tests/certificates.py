"""A certificate for this machine, and the authority that signed it."""

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAMES = [
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
]


class Certificate(NamedTuple):
    authority: Path
    cert: Path
    key: Path

    @property
    def settings(self) -> str:
        return f'[tls]\ncert = "{self.cert}"\nkey = "{self.key}"\n'


def make_certificate(directory: Path) -> Certificate:
    """Three PEM files, valid from yesterday on."""
    files = Certificate(*(directory / name for name in ("ca.pem", "cert.pem", "key.pem")))
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority, name = _name("Test authority"), _name("turnout")
    basic = x509.BasicConstraints(ca=True, path_length=0)
    ca = _builder(authority, authority, authority_key).add_extension(basic, critical=True)
    leaf = _builder(name, authority, key).add_extension(x509.SubjectAlternativeName(NAMES), critical=False)
    for file, builder in ((files.authority, ca), (files.cert, leaf)):
        signed = builder.sign(authority_key, hashes.SHA256())
        file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return files


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
    )
