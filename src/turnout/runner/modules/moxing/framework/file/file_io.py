"""The functions of `mox.file`. Each takes obs:// and s3:// URLs, and local paths."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
import threading
from glob import glob as _glob_here
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from ... import _copies, _objects
from ..._directories import Stat, entries, match, stat_of, walk_bucket
from ..._errors import MoxFileNotExistsException, not_exists
from ..._http import log
from ..._paths import is_remote, place, text
from ..._streams import File

# Programs set these. Here threads do the work, as many as `copy_parallel` is told.
NUMBER_OF_PROCESSES = _NUMBER_OF_PROCESSES = 1
_LARGE_FILE_METHOD = 2
_LARGE_FILE_TASK_NUM = 1

Data = Union[str, bytes]


def read(url: Any, client_id: Optional[str] = None, binary: bool = False) -> Any:
    """The whole file: text, or bytes."""
    name = text(url)
    if not is_remote(name):
        with builtins.open(name, "rb") as file:
            data = file.read()
    else:
        where = place(name)
        data = _objects.read(where.bucket, where.key)
    return data if binary else data.decode()


def write(url: Any, data: Data, binary: bool = False) -> None:
    with File(url, "wb" if binary else "w") as file:
        file.write(data)


def append(url: Any, data: Data, binary: bool = False) -> None:
    with File(url, "ab" if binary else "a") as file:
        file.write(data)


def append_remote(src_url: str, dst_url: str) -> None:
    """Writes one object to the end of another."""
    with File(src_url, "rb") as source, File(dst_url, "ab") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def copy(src_url: Any, dst_url: Any, client_id: Optional[str] = None) -> None:
    """One file. A target that ends with a slash is a directory."""
    _copies.copy(text(src_url), text(dst_url))


def copy_parallel(
    src_url: Any,
    dst_url: Any,
    file_list: Optional[Iterable[str]] = None,
    threads: int = _copies.THREADS,
    is_processing: bool = True,
    use_queue: bool = True,
    **_others: Any,
) -> None:
    """Everything below `src_url`, or the files of it in `file_list`. It may also be one file.

    `is_processing`, `use_queue` and further arguments of Huawei's moxing have no effect.
    """
    most = threads if threads and threads > 0 else _copies.THREADS
    _copies.copy_parallel(text(src_url), text(dst_url), file_list, min(most, 64))


def background_sync_copy(src_url: Any, dst_url: Any, seconds: float = 60) -> threading.Thread:
    """Copies the files of a local directory that have changed, every so many seconds, until the program ends."""
    stop = threading.Event()
    source, target = text(src_url), text(dst_url)
    sent: Dict[str, Tuple[int, int]] = {}

    def sync() -> None:
        while not stop.wait(seconds):
            try:
                seen = _states(source)
                changed = [name for name, state in seen.items() if sent.get(name) != state]
                copy_parallel(source, target, file_list=changed)
                sent.update(seen)
            except Exception as error:  # noqa: BLE001 (the next time may go well, and training goes on)
                log.warning("%s was not copied to %s: %s", source, target, error)

    thread = threading.Thread(target=sync, daemon=True)
    thread.start()
    return thread


def exists(url: Any) -> bool:
    name = text(url)
    if not is_remote(name):
        return os.path.exists(name)
    where = place(name)
    if where.key and not where.key.endswith("/") and _objects.head(where.bucket, where.key):
        return True
    return is_directory(name)


def is_directory(url: Any) -> bool:
    name = text(url)
    if not is_remote(name):
        return os.path.isdir(name)
    try:
        return _copies.is_directory(place(name))
    except MoxFileNotExistsException:
        return False


def list_directory(
    url: Any,
    recursive: bool = False,
    remove_sep: bool = True,
    skip_file: bool = False,
    skip_dir: bool = False,
) -> List[str]:
    """The names in a directory, relative to it. With `remove_sep=False` those of directories end with a slash."""
    names: List[str] = []
    root = text(url)
    if not is_remote(root) and not os.path.isdir(root):
        raise not_exists(root)
    for directory, below, files in walk_bucket(root, True) if is_remote(root) else os.walk(root):
        inside = directory[len(root.rstrip("/")) :].strip("/")
        inside = f"{inside}/" if inside else ""
        names += [] if skip_dir else [f"{inside}{name}{'' if remove_sep else '/'}" for name in below]
        names += [] if skip_file else [f"{inside}{name}" for name in files]
        if not recursive:
            break
    return sorted(names)


def walk(
    url: Any, topdown: bool = True, onerror: Any = None, followlinks: bool = False
) -> Iterator[Tuple[str, List[str], List[str]]]:
    """Like `os.walk`: nothing, if there is no such directory."""
    name = text(url)
    if not is_remote(name):
        yield from os.walk(name, topdown, onerror, followlinks)
        return
    try:
        yield from walk_bucket(name, topdown)
    except MoxFileNotExistsException as error:
        if onerror:
            onerror(error)


def scan_dir(url: Any) -> Any:
    """An iterator over entries, like that of `os.scandir`."""
    name = text(url)
    return entries(name) if is_remote(name) else os.scandir(name)


def glob(url: Any, recursive: bool = False) -> List[str]:
    name = text(url)
    return match(name, recursive) if is_remote(name) else _glob_here(name, recursive=recursive)


def stat(url: Any) -> Stat:
    """With `length`, `mtime_nsec` and `is_directory`, and the names of `os.stat_result`."""
    return stat_of(text(url))


def get_size(url: Any, recursive: bool = False) -> int:
    """The size of a file in bytes. A directory has 0, or the size of all files in it if `recursive`."""
    found = stat(url)
    if not found.is_directory:
        return found.length
    if not recursive:
        return 0
    name = text(url)
    if is_remote(name):
        return sum(size for _, size in _copies.list_keys(place(name)))
    return sum(size for _, size in _states(name).values())


def mk_dir(url: Any) -> None:
    """Raises OSError if its parent does not exist."""
    name = text(url)
    if not is_remote(name):
        os.mkdir(name)
        return
    where = place(name)
    parent = where.directory.rstrip("/").rpartition("/")[0]
    if parent and not is_directory(where.url(parent)):
        raise not_exists(where.url(parent))
    _objects.make_directory(where.bucket, where.directory)


mkdir = mk_dir


def make_dirs(url: Any) -> None:
    """A directory that exists is no error."""
    name = text(url)
    if not is_remote(name):
        os.makedirs(name, exist_ok=True)
        return
    if not is_directory(name):
        where = place(name)
        _objects.make_directory(where.bucket, where.directory)


def remove(url: Any, recursive: bool = False) -> None:
    """A file; or everything in a directory, if `recursive`. In a bucket nothing happens if there is nothing."""
    name = text(url)
    if is_remote(name):
        where = place(name)
        if where.key and not where.key.endswith("/"):
            _objects.delete(where.bucket, where.key)
        if recursive:
            _objects.delete_all(where.bucket, [key for key, _ in _copies.list_keys(where)])
    elif recursive and os.path.isdir(name) and not os.path.islink(name):
        shutil.rmtree(name)
    else:
        os.remove(name)


def rename(src_url: Any, dst_url: Any) -> None:
    """A file or a directory. To or from a bucket, and within one, it is a copy and a removal."""
    source, target = text(src_url), text(dst_url)
    if not is_remote(source) and not is_remote(target):
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
        os.rename(source, target)
        return
    if source.rstrip("/") == target.rstrip("/"):
        return
    if target.rstrip("/").startswith(f"{source.rstrip('/')}/"):
        raise OSError(errno.EINVAL, "A directory cannot be moved into itself", source)
    is_file = not stat(source).is_directory
    copy(source, target) if is_file else copy_parallel(source, target)
    remove(source, recursive=not is_file)


def _states(directory: str) -> Dict[str, Tuple[int, int]]:
    """The time of change and the size of each file below a local directory."""
    found: Dict[str, Tuple[int, int]] = {}
    for parent, _, files in os.walk(directory):
        for name in files:
            path = os.path.join(parent, name)
            if os.path.isfile(path):
                seen = os.stat(path)
                found[os.path.relpath(path, directory)] = (seen.st_mtime_ns, seen.st_size)
    return found
