"""Removes any directory tree, however deep and whatever its names and modes, and nothing outside of it.

It works with descriptors and follows no link, because a program that still runs may replace a directory by one. It does
not recurse, and only a few directories are open at a time: a directory that is not empty is moved up to the top one and
handled later.
"""

import errno
import itertools
import os
from collections.abc import Callable, Iterator

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FIND = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ALL = 0o700
_MAX_NAMES = 10_000
_MAX_PASSES = 100_000
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)


def remove(name: str, above: int | None = None, pause: Callable[[], None] = lambda: None) -> None:
    """Removes the file or directory `name` in the directory `above` (a descriptor).

    `pause` is called after each directory. Everything that can be removed is removed, then the first OSError is raised.
    """
    try:
        if _try_remove(name, above):
            return
        top = _open_writable(name, above)
    except FileNotFoundError:
        return
    try:
        _empty(top, pause)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=above)


def _empty(top: int, pause: Callable[[], None]) -> None:
    """Repeats passes over the directory while they make progress."""
    number = itertools.count()
    device = os.fstat(top).st_dev
    first_error: OSError | None = None
    # Bounded, because another process may go on writing into it.
    for _ in range(_MAX_PASSES):
        first_error, progress = None, False
        for name in _names(top):
            try:
                if not _try_remove(name, top):
                    _flatten(name, top, device, number)
                    pause()
                progress = True
            except OSError as error:
                first_error = first_error or error
        if not progress:
            break
    if first_error:
        raise first_error


def _flatten(name: str, top: int, device: int, number: Iterator[int]) -> None:
    """Removes the directory `name` of `top` after moving its subdirectories up to `top`. Raises OSError if nothing
    could be done. The rest of a large directory is handled in the next pass.
    """
    here = _open_writable(name, top)
    first_error: OSError | None = None
    progress = False
    try:
        if os.fstat(here).st_dev != device:
            raise OSError(errno.EBUSY, "another file system is mounted there", name)
        for inner in _names(here):
            try:
                if not _try_remove(inner, here):
                    _move_up(inner, here, top, number)
                progress = True
            except OSError as error:
                first_error = first_error or error
    finally:
        os.close(here)
    try:
        os.rmdir(name, dir_fd=top)
    except OSError as error:
        if not progress:
            raise first_error or error from None


def _move_up(name: str, here: int, top: int, number: Iterator[int]) -> None:
    """A directory that is moved has to be writable itself."""
    os.close(_open_writable(name, here))
    for count in number:
        try:
            os.rename(name, f".{count}", src_dir_fd=here, dst_dir_fd=top)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        else:
            return


def _try_remove(name: str, above: int | None) -> bool:
    """False if it is a directory that is not empty."""
    try:
        os.unlink(name, dir_fd=above)
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=above)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES):
                raise
            return False
    except FileNotFoundError:
        pass
    return True


def _open_writable(name: str, above: int | None) -> int:
    """Opens the directory, after giving its owner all rights on it."""
    found = os.open(name, _FIND, dir_fd=above)
    try:
        # An open directory can no longer be replaced by a link.
        status, path = os.fstat(found), f"/proc/self/fd/{found}"
        if os.geteuid() == 0 and status.st_uid:
            # Processes that still hold it open can no longer write into it.
            os.chown(path, 0, 0)
        if status.st_mode & _ALL != _ALL or status.st_mode & ~_ALL & 0o777:
            os.chmod(path, _ALL)
        return os.open(".", _OPEN, dir_fd=found)
    finally:
        os.close(found)


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, _MAX_NAMES)]
