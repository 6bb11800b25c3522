"""Debian's docker-registry on loopback, with a directory of its own, with or without a password and TLS."""

import contextlib
import http.client
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Certificate

USER, PASSWORD = "trainer", "secret"
_HASH = "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"


class Registry:
    def __init__(self, port: int, directory: Path, password: bool) -> None:
        self.host = f"127.0.0.1:{port}"
        self.blobs = directory / "docker" / "registry" / "v2" / "blobs" / "sha256"
        self._password = password

    def push(self, source: str, name: str, *options: str) -> str:
        """Returns the full name."""
        login = ["--dest-creds", f"{USER}:{PASSWORD}"] if self._password else []
        target = f"docker://{self.host}/{name}"
        command = [
            "skopeo",
            "--insecure-policy",
            "copy",
            "--quiet",
            "--dest-tls-verify=false",
            *login,
            *options,
            source,
            target,
        ]
        subprocess.run(command, check=True, capture_output=True)
        return f"{self.host}/{name}"

    def blob(self, digest: str) -> Path:
        name = digest.removeprefix("sha256:")
        return self.blobs / name[:2] / name / "data"


@contextlib.contextmanager
def running(
    directory: Path, password: bool = False, certificate: Certificate | None = None
) -> Iterator[Registry]:
    directory.mkdir()
    port = free_port()
    config = directory / "config.yml"
    config.write_text(f"""
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {directory / "data"}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
""")
    if certificate:
        config.write_text(
            config.read_text().replace(
                f'"127.0.0.1:{port}"',
                f'"127.0.0.1:{port}", tls: {{certificate: {certificate.cert}, key: {certificate.key}}}',
            )
        )
    if password:
        (directory / "htpasswd").write_text(f"{USER}:{_HASH}\n")
        with config.open("a") as file:
            file.write(f"auth: {{htpasswd: {{realm: tests, path: {directory / 'htpasswd'}}}}}\n")
    process = subprocess.Popen(
        ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port, process)
        yield Registry(port, directory / "data", password)
    finally:
        process.terminate()
        process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/v2/")
            connection.getresponse()
            connection.close()
            return
        time.sleep(0.05)
    pytest.fail("docker-registry does not start")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
