"""The root directory of a replica that runs in an image: an overlay of the image's layers, with a directory of the
replica on top, which is thrown away with it.

Everything here runs in the child, in its own mount namespace and with the rights of the job's user. What an image
contains decides nothing outside of it: bubblewrap would follow a link of the image at a mount point, so each mount
point is looked up, and made if it is missing, inside the root (RESOLVE_IN_ROOT).
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Sequence

from ..disk.in_root import PATH, open_in_root
from . import users
from .mounts import STAGE_MODE

ROOT = "space/root"
"""In the replica's directory: what it writes in its root, and what the overlay needs for that."""
UPPER = f"{ROOT}/upper"
"""Files that it has made or changed, at their paths."""
ROOT_MOUNT, PODMAN_MOUNT = "root", "podman"
"""Mount points below the stage: of the overlay, and of what podman stores."""

_DIRECTORY = PATH | os.O_DIRECTORY
_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: see `clone`

# The number of words after each option; the last one is a path inside the sandbox for those in _AT.
_WORDS = {
    "--bind": 2, "--ro-bind": 2, "--dev-bind": 2, "--ro-bind-data": 2, "--symlink": 2, "--setenv": 2,
    "--tmpfs": 1, "--proc": 1, "--dir": 1, "--chdir": 1, "--perms": 1, "--hostname": 1, "--uid": 1, "--gid": 1,
    "--cap-drop": 1, "--seccomp": 1,
}  # fmt: skip
_AT = frozenset(
    {"--bind", "--ro-bind", "--dev-bind", "--ro-bind-data", "--tmpfs", "--proc", "--dir", "--chdir"}
)
_FILES = frozenset({"--ro-bind-data"})
_BINDS = frozenset({"--bind", "--ro-bind", "--dev-bind"})


def staged(stage: str) -> str:
    """Where the overlay is mounted."""
    return f"{stage}/{ROOT_MOUNT}"


def make_mount_point(stage: str, name: str) -> None:
    """Outside of a replica's mount namespace it stays empty."""
    try:
        os.mkdir(f"{stage}/{name}", 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.mkdir(stage, STAGE_MODE if users.uids() else 0o700)
        os.mkdir(f"{stage}/{name}", 0o700)


def make_directories(directory: str, start: int, user: int) -> None:
    """Makes what the overlay writes to. A replica that starts again finds what it wrote. Raises OSError."""
    with users.acting_as(user):
        for name in (ROOT, UPPER, _work(start)):
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{directory}/{name}", 0o755)


def mount(layers: Sequence[str], directory: str, start: int, stage: str) -> None:
    """Mounts the overlay. `layers`: the topmost first. Raises OSError."""
    # As numbers of descriptors, because all options together must fit into a page: with 500 layers too.
    opened = [os.open(layer, _DIRECTORY) for layer in layers]
    upper, work = (os.open(f"{directory}/{name}", _DIRECTORY) for name in (UPPER, _work(start)))
    options = f"lowerdir={':'.join(map(str, opened))},upperdir={upper},workdir={work},userxattr,volatile"
    os.chdir("/proc/self/fd")
    result = _libc.mount(b"overlay", os.fsencode(staged(stage)), b"overlay", 0, options.encode())
    number = ctypes.get_errno()
    os.chdir("/")
    for fd in (*opened, upper, work):
        os.close(fd)
    if result < 0:
        raise OSError(number, os.strerror(number), "the overlay of the image's layers")


def place(options: Sequence[str], root: str) -> list[str]:
    """Bubblewrap's options with the mount points that the root really has; missing ones are made. Raises OSError."""
    top = os.open(root, _DIRECTORY)
    try:
        return _place(options, top)
    finally:
        os.close(top)


def _place(options: Sequence[str], top: int) -> list[str]:
    found: list[str] = []
    mounted: dict[str, str] = {}
    """Mount points so far: as they were requested, and where they are. What lies inside is not in the image."""
    words = iter(options)
    for option in words:
        arguments = [next(words) for _ in range(_WORDS.get(option, 0))]
        if option in _AT and arguments[-1] != "/":
            wanted = arguments[-1].rstrip("/") or "/"
            outer = next((path for path in mounted if wanted.startswith(path + "/")), None)
            if outer is not None:
                at = mounted[outer] + wanted[len(outer) :]
            else:
                is_file = option in _FILES or (option in _BINDS and not os.path.isdir(arguments[0]))
                at = _mount_point(top, wanted, is_file)
            if option not in ("--dir", "--chdir"):
                mounted[wanted] = at
            arguments[-1] = at
        elif option == "--symlink" and not any(arguments[1].startswith(path + "/") for path in mounted):
            _link(top, *arguments)
            continue
        found += (option, *arguments)
    return found


def _mount_point(top: int, path: str, is_file: bool) -> str:
    """Where this path is in the root, without links. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        fd = open_in_root(top, path)
        try:
            return _inside(top, fd)
        finally:
            os.close(fd)
    above, _, name = path.rpartition("/")
    directory = _mount_point(top, above, False) if above else ""
    parent = open_in_root(top, directory or "/", _DIRECTORY)
    try:
        # A link that leads nowhere.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        if is_file:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=parent))
        else:
            os.mkdir(name, 0o755, dir_fd=parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{path} in the image") from None
    finally:
        os.close(parent)
    return f"{directory}/{name}"


def _link(top: int, leads_to: str, path: str) -> None:
    """Makes a link in the root, in place of a file or link. Raises OSError."""
    above, _, name = path.rpartition("/")
    parent = open_in_root(top, _mount_point(top, above, False) if above else "/", _DIRECTORY)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        os.symlink(leads_to, name, dir_fd=parent)
    finally:
        os.close(parent)


def _inside(top: int, fd: int) -> str:
    root, path = (os.readlink(f"/proc/self/fd/{number}") for number in (top, fd))
    if not path.startswith(root):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    return path[len(root) :] or "/"


def _work(start: int) -> str:
    """Each start has its own: the kernel refuses one that was used before, because nothing was flushed to disk."""
    return f"{ROOT}/work-{start}"
