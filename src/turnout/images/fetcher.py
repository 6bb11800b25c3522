"""The child process that runs skopeo: it gives up its rights, prepares its directory, and replaces itself with skopeo.

Passwords come in the first line of its input and go on in memory, so they are neither in arguments nor on the disk.
"""

import os
import resource
import socket
import sys
from pathlib import Path

import msgspec

from turnout.child_processes.bootstrap import Setup, drop_privileges, read_setup
from turnout.images.reference import is_internal

AUTH_FILE = "{auth-file}"
"""Stands for the path of the passwords in the arguments."""
PARTIAL = "oci-put-blob"
"""How skopeo names a blob that is not complete."""
CERTIFICATES = "certs"
INTERNAL = "the registry's name leads to this machine or its network"
"""What it says instead of becoming skopeo."""


class Fetch(Setup):
    directory: str = ""
    """Where skopeo may write."""
    command: list[str] = msgspec.field(default_factory=list)
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    auth: str = ""
    """The content of skopeo's auth file."""
    ca: str = ""
    """The certificates that sign the registry's, in PEM."""
    present: dict[str, int] = msgspec.field(default_factory=dict)
    """Sizes of layers that are in the cache, by the name of the blob. Each gets an empty file of its size, which skopeo
    takes for the layer.
    """
    wanted: dict[str, int] = msgspec.field(default_factory=dict)
    """Sizes of the layers to fetch."""
    outside: str = ""
    """The host of a registry that must not be this machine."""


def main() -> None:
    # Its output is skopeo's, not replies.
    output = os.dup(1)
    setup = read_setup(Fetch)
    os.dup2(output, 1)
    os.close(output)
    drop_privileges(setup)
    if setup.outside and _leads_inside(setup.outside):
        sys.exit(INTERNAL)
    _prepare(Path(setup.directory), setup)
    auth = os.memfd_create("auth", 0)
    os.write(auth, setup.auth.encode())
    path = f"/proc/self/fd/{auth}"
    command = [argument.replace(AUTH_FILE, path) for argument in setup.command]
    os.execve(command[0], command, setup.environment)


def _leads_inside(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False  # skopeo says what is wrong with the name
    return any(is_internal(str(address[4][0])) for address in found)


def _prepare(directory: Path, setup: Fetch) -> None:
    certificates = directory / CERTIFICATES
    certificates.mkdir(exist_ok=True)
    if setup.ca:
        (certificates / "registry.crt").write_text(setup.ca)
    if not setup.wanted:
        return
    for path in directory.glob(f"{PARTIAL}*"):
        path.unlink()
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    for name, size in setup.wanted.items():
        path = blobs / name
        if path.exists() and path.stat().st_size != size:
            path.unlink()
    for name, size in setup.present.items():
        with open(blobs / name, "wb") as file:
            file.truncate(size)
    largest = max(setup.wanted.values()) + (1 << 20)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
