"""The process that unpacks layers: a layer is not trusted, so this process has no rights except to its directory.

A request names a layer by its digests. The unpacked layer gets its name only when both digests are right and all of it
is on the disk.
"""

import ctypes
import errno
import os
import shutil
import sys
from pathlib import Path

import msgspec

from turnout import chaos
from turnout.child_processes.bootstrap import Reply, Setup, drop_privileges, read_setup, reply
from turnout.errors import TurnoutError
from turnout.images.blob import LayerBlob
from turnout.images.layer import Applied, LayerLimits, apply

_NEW = ".new-"
_GONE = ".gone-"
_PER_FILE = 4096
"""What the headers of one file may need in the archive, beside its content."""


class Unpacking(Setup):
    directory: str = ""
    """The directory of layers."""
    kill_at: str = ""


class Unpack(msgspec.Struct):
    blob: str
    digest: str
    diff_id: str
    bytes: int
    files: int
    """The most of each."""
    only_check: bool = False
    """Whether to check the digests and unpack nothing."""


class Unpacked(Reply):
    bytes: int = 0
    files: int = 0
    skipped: list[str] = msgspec.field(default_factory=list)
    opaque: bool = False
    error: str = ""
    full: bool = False
    """Whether the disk was full."""


class _Request(msgspec.Struct):
    id: int
    unpack: Unpack | None = None
    remove: list[str] = []
    """The diff_ids of layers to delete."""
    clean: list[str] = []
    """The names of directories to delete, which nobody uses."""


def layer_name(diff_id: str) -> str:
    """The name of the layer's directory. It is short, because all names must fit into one mount option."""
    return diff_id.removeprefix("sha256:")[:32]


def main() -> None:
    setup = read_setup(Unpacking)
    drop_privileges(setup)
    chaos.kill_at = setup.kill_at
    directory = Path(setup.directory)
    decoder = msgspec.json.Decoder(_Request)
    for line in sys.stdin.buffer:
        request = decoder.decode(line)
        reply(_carry_out(request, directory))


def _carry_out(request: _Request, directory: Path) -> Unpacked:
    try:
        for name in request.clean:
            shutil.rmtree(directory / name)
        for diff_id in request.remove:
            _remove(directory, diff_id)
        if request.unpack is None:
            return Unpacked(request.id)
        done = _unpack(request.unpack, directory)
        return Unpacked(request.id, done.bytes, done.files, done.skipped, done.opaque)
    except TurnoutError as error:
        return Unpacked(request.id, error=error.message)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return Unpacked(request.id, error=error.strerror or str(error), full=full)
    except (ValueError, MemoryError, RecursionError) as error:
        return Unpacked(request.id, error=f"the layer cannot be read: {error or type(error).__name__}")


def _unpack(wanted: Unpack, directory: Path) -> Applied:
    most = wanted.bytes + wanted.files * _PER_FILE
    if wanted.only_check:
        with LayerBlob(wanted.blob, most) as blob:
            blob.check(wanted.digest, wanted.diff_id)
        return Applied(0, 0, [], False)
    name = layer_name(wanted.diff_id)
    new = directory / f"{_NEW}{name}"
    shutil.rmtree(new, ignore_errors=True)
    os.mkdir(new, 0o700)
    try:
        root = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(root, 0o755)
            with LayerBlob(wanted.blob, most) as blob:
                applied = apply(blob, root, LayerLimits(wanted.bytes, wanted.files))
                blob.check(wanted.digest, wanted.diff_id)
            chaos.point("image-unpacked")
            _sync(root)
        finally:
            os.close(root)
        shutil.rmtree(directory / name, ignore_errors=True)  # without a record it is not in use
        os.rename(new, directory / name)
        _sync_directory(directory)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return applied


def _remove(directory: Path, diff_id: str) -> None:
    """Renames it first, so that an incomplete layer never has the name of a complete one."""
    name = layer_name(diff_id)
    gone = directory / f"{_GONE}{name}"
    shutil.rmtree(gone, ignore_errors=True)
    try:
        os.rename(directory / name, gone)
    except FileNotFoundError:
        return
    chaos.point("image-removing")
    shutil.rmtree(gone)


def _sync(descriptor: int) -> None:
    """Writes the whole file system: one call for each of a layer's many files takes far longer. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
