"""Connects to the supervisor's Unix socket."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path


def connect(directory: Path) -> socket.socket | None:
    """A connection to the supervisor of this directory; None: no supervisor listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with socket_path(directory) as path:
            connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    return connection


@contextlib.contextmanager
def socket_path(directory: Path) -> Iterator[str]:
    """The socket's path through a descriptor of its directory, because a socket's path has at most 108 bytes."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/socket"
    finally:
        os.close(opened)
