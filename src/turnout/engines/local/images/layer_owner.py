"""Layers of images as they look to the user of a project.

In an image nearly everything belongs to its root. Inside a replica the job's user is that root, so the files must
belong to that user, and each project has another one. A mount with mapped ids shows the directory of layers as if it
did (Linux 5.12, and 5.19 for overlays). Only root can make it; if the service is not root, jobs run as its own user, to
whom the layers belong anyway.
"""

import ctypes
import errno
import os
import struct
import subprocess
import threading
from pathlib import Path

from turnout.engines.local.users.account import Account
from turnout.errors import Unavailable

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_CLONE, _CLOEXEC, _EMPTY_FROM, _EMPTY_PATH = 1, os.O_CLOEXEC, 4, 0x1000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _MAPPED_IDS = 0x1, 0x2, 0x4, 0x100000
_DETACH = 2
_HERE = -100
_libc = ctypes.CDLL(None, use_errno=True)


class LayerOwner:
    """`layers`: the directory of all layers. `mounts`: a directory of root's own for the mounts."""

    def __init__(self, layers: Path, mounts: Path) -> None:
        self._layers = layers
        self._mounts = mounts
        self._mounted: dict[int, Path] = {}
        self._lock = threading.Lock()

    def directory(self, account: Account) -> Path:
        """Where the layers belong to this user. Blocks for a moment at the first call. Raises Unavailable."""
        if not account.other:
            return self._layers
        with self._lock:
            if account.uid not in self._mounted:
                try:
                    self._mounted[account.uid] = self._mount(account)
                except OSError as error:
                    raise Unavailable(
                        f"this machine cannot show the files of images as those of another user ({error}): that needs "
                        "Linux 5.19 and a file system such as ext4, xfs or btrfs for the data directory. "
                        "A service that an ordinary user starts does not need it"
                    ) from None
            return self._mounted[account.uid]

    def close(self) -> None:
        """Replicas that run keep their own."""
        for path in self._mounted.values():
            _libc.umount2(os.fsencode(path), _DETACH)
        self._mounted.clear()

    def _mount(self, account: Account) -> Path:
        target = self._mounts / str(account.uid)
        target.mkdir(mode=0o755, parents=True, exist_ok=True)
        # One that an earlier service left behind.
        _libc.umount2(os.fsencode(target), _DETACH)
        owner = self._layers.stat()
        users = _user_namespace((owner.st_uid, account.uid), (owner.st_gid, account.gid))
        try:
            tree = _call(_OPEN_TREE, _HERE, os.fsencode(self._layers), _CLONE | _CLOEXEC)
            try:
                flags = _READ_ONLY | _NO_SETUID | _NO_DEVICES | _MAPPED_IDS
                attributes = struct.pack("<4Q", flags, 0, 0, users)
                _call(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, attributes, ctypes.c_size_t(len(attributes)))
                _call(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _EMPTY_FROM)
            finally:
                os.close(tree)
        finally:
            os.close(users)
        return target


def _user_namespace(uids: tuple[int, int], gids: tuple[int, int]) -> int:
    """A user namespace whose only use is its maps of ids, (on disk, as shown). Raises OSError."""
    # It runs until its input is closed.
    command = ("unshare", "--user", "/bin/sh", "-c", "echo ready; read line")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        if not process.stdout.readline():
            raise OSError(errno.EPERM, "no user namespace can be made")
        for name, (inside, outside) in (("uid_map", uids), ("gid_map", gids)):
            Path(f"/proc/{process.pid}/{name}").write_text(f"{inside} {outside} 1\n")
        return os.open(f"/proc/{process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
