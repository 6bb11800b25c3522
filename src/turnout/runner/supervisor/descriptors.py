"""Receives open files over a Unix socket. `socket.recv_fds` does not pass on its flags (Python 3.11)."""

import array
import socket

_MOST = 64


def receive(line: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """The data and the files that came with it. Child processes do not inherit the files."""
    files = array.array("i")
    data, extra, _, _ = line.recvmsg(size, socket.CMSG_LEN(_MOST * files.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, packed in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(packed[: len(packed) - len(packed) % files.itemsize])
    return data, list(files)
