"""`turnout keys create --google`: writes a service account file. The private key is created here and never sent."""

import json
import os
import sys
from typing import Any

from turnout.cli.client import Client
from turnout.errors import AlreadyExists, Invalid

KEY_BITS = 2048


def create(client: Client, project: str, label: str, out: str) -> None:
    if out:
        _check(out)
    private, public = _key_pair()
    body = json.dumps({"project": project, "label": label, "public_key": public}).encode()
    key = client.send("POST", "keys", query={}, body=body)
    document = json.dumps(_document(key, private, client.endpoint), indent=2) + "\n"
    if not out:
        sys.stdout.write(document)
        return
    with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(document)
    print(f"Created a service account of project {key['project']}. To use it:")
    print(f"  export GOOGLE_APPLICATION_CREDENTIALS={os.path.abspath(out)}")


def _check(out: str) -> None:
    """Checks before the key is created: if the file cannot be written, its private half is lost."""
    if os.path.lexists(out):
        raise AlreadyExists(f"{out} already exists: choose another name, or remove it")
    directory = os.path.dirname(out) or "."
    if not os.path.isdir(directory):
        raise Invalid(f"{directory} is not a directory")
    if not os.access(directory, os.W_OK):
        raise Invalid(f"{directory} is not writable")


def _key_pair() -> tuple[str, str]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, KEY_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private.decode(), public.decode()


def _document(key: dict[str, Any], private: str, endpoint: str) -> dict[str, str]:
    """In the format of Google's own files, so that every library accepts it.

    google-auth asks Google where an account of the universe googleapis.com may be used, and sends the token along. For
    another universe it does not, even if the user forgets to set the endpoint.
    """
    account = key["account"]
    return {
        "type": "service_account",
        "project_id": key["project"],
        "private_key_id": account["private_key_id"],
        "private_key": private,
        "client_email": account["client_email"],
        "client_id": account["client_id"],
        "token_uri": f"{endpoint}/token",
        "universe_domain": account["universe_domain"],
    }
