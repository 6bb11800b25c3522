"""How the API server is found, and what is said if it is not."""

import base64
import json
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import make_certificate
from turnout.engines import Unreachable
from turnout.engines.kubernetes.kubeconfig import read_access


def write(path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, **context: Any) -> str:
    content = {
        "current-context": "lab",
        "clusters": [{"name": "c", "cluster": cluster or {"server": "https://10.0.0.1:6443/prefix"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u", **context}}],
    }
    file = path / "config"
    file.write_text(json.dumps(content))
    return str(file)


def test_a_token(tmp_path: Path):
    access = read_access(write(tmp_path, {"token": "secret"}, namespace="ml"), "", {})
    assert (access.authorization, access.namespace) == ("Bearer secret", "ml")
    assert (access.server.netloc, access.server.path) == ("10.0.0.1:6443", "/prefix")
    assert access.context is not None
    assert access.context.verify_mode is ssl.CERT_REQUIRED


def test_a_token_in_a_file_beside_the_kubeconfig(tmp_path: Path):
    (tmp_path / "token").write_text("from a file\n")
    access = read_access(write(tmp_path, {"tokenFile": "token"}), "", {})
    assert (access.authorization, access.namespace) == ("Bearer from a file", "default")


def test_a_password(tmp_path: Path):
    access = read_access(write(tmp_path, {"username": "me", "password": "x"}), "", {})
    assert access.authorization == f"Basic {base64.b64encode(b'me:x').decode()}"


def test_a_client_certificate_and_an_authority_in_the_file(tmp_path: Path):
    certificate = make_certificate(tmp_path)
    cert, key = (
        base64.b64encode(Path(path).read_bytes()).decode() for path in (certificate.cert, certificate.key)
    )
    user = {"client-certificate-data": cert, "client-key-data": key}
    cluster = {"server": "https://h", "certificate-authority-data": cert, "tls-server-name": "kubernetes"}
    access = read_access(write(tmp_path, user, cluster), "", {})
    assert (access.authorization, access.server_name) == ("", "kubernetes")
    assert access.context is not None
    assert access.context.cert_store_stats()["x509"] == 1


def test_a_command_that_gets_credentials(tmp_path: Path):
    program = (
        "import json, os; wanted = json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind']\n"
        "status = {'token': os.environ['PREFIX'] + wanted, 'expirationTimestamp': '2099-01-01T00:00:00Z'}\n"
        "print(json.dumps({'status': status}))"
    )
    env = [{"name": "PREFIX", "value": "for "}]
    user = {"exec": {"command": sys.executable, "args": ["-c", program], "env": env}}
    access = read_access(write(tmp_path, user), "", {})
    assert access.authorization == "Bearer for ExecCredential"
    assert time.time() < access.expires < float("inf")


@pytest.mark.parametrize(
    ("user", "context", "message"),
    [
        (
            {"exec": {"command": "/nowhere/aws"}},
            "",
            "/nowhere/aws, which the kubeconfig runs for credentials, failed",
        ),
        ({"exec": {"command": "sh", "args": ["-c", "echo no login >&2; exit 1"]}}, "", "failed: no login"),
        ({}, "prod", "has no context 'prod'; it has lab"),
        ({"tokenFile": "absent"}, "", "cannot be used"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, user: dict[str, Any], context: str, message: str):
    with pytest.raises(Unreachable) as error:
        read_access(write(tmp_path, user), context, {"PATH": "/usr/bin:/bin"})
    assert message in error.value.message


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(Unreachable, match="kube/config cannot be read: No such file or directory"):
        read_access("", "", {"HOME": str(tmp_path)})
