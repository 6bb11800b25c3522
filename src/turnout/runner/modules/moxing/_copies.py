"""Files and directories from here to a bucket, back, and from bucket to bucket.

A file or an object is there whole or not at all. Large ones go in parts, beside each other.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from typing import Iterable, Iterator, List, Optional, Set, Tuple

from . import _objects
from ._errors import MoxFileNameDuplicateException, not_exists
from ._http import log
from ._objects import Object, Upload, part_size
from ._parallel import Parallel
from ._paths import Place, is_remote, join, place

THREADS = 16
_RANGE = 16 << 20
"""What one connection fetches of a large object."""


def copy(src_url: str, dst_url: str) -> None:
    if dst_url.endswith("/") or (not is_remote(dst_url) and os.path.isdir(dst_url)):
        dst_url = join(dst_url, os.path.basename(src_url.rstrip("/")))
    with Parallel(THREADS) as parallel:
        if not is_remote(src_url):
            _check_is_file(src_url)
            _send(parallel, src_url, dst_url)
            return
        source = place(src_url)
        found = _objects.head(source.bucket, source.key) if source.key else None
        if not found:
            if is_directory(source):
                raise IsADirectoryError(21, "Is a directory: use mox.file.copy_parallel", src_url)
            raise not_exists(src_url)
        if is_remote(dst_url):
            target = place(dst_url)
            _objects.copy((source.bucket, source.key), (target.bucket, target.key))
        else:
            _Downloads(parallel).add(source.bucket, found, dst_url)


def copy_parallel(src_url: str, dst_url: str, file_list: Optional[Iterable[str]], threads: int) -> None:
    if _is_file(src_url):
        copy(src_url, dst_url)
        return
    with Parallel(threads) as parallel:
        if is_remote(src_url):
            _from_bucket(parallel, src_url, dst_url, file_list)
        else:
            if not os.path.isdir(src_url):
                raise not_exists(src_url)
            _from_here(parallel, src_url, dst_url, file_list)
    if not parallel.started:
        log.warning("No files to copy: %s", src_url)


def is_directory(where: Place) -> bool:
    """Whether something lies below it."""
    if not where.directory:
        return _objects.has_bucket(where.bucket)
    page = next(iter(_objects.listing(where.bucket, where.directory, "/")))
    return bool(page.objects or page.prefixes)


def upload(parallel: Parallel, path: str, bucket: str, key: str) -> None:
    """Raises OSError."""
    size = os.path.getsize(path)
    step = part_size(size)
    if size <= step:
        parallel.start(_put, path, bucket, key)
        return
    parts = -(-size // step)
    one = _PartedUpload(Upload(bucket, key), path, parts)
    for number in range(parts):
        parallel.start(one.send, number + 1, number * step, min(step, size - number * step))


def _from_bucket(parallel: Parallel, src_url: str, dst_url: str, names: Optional[Iterable[str]]) -> None:
    source = place(src_url)
    downloads = _Downloads(parallel)
    target = place(dst_url) if is_remote(dst_url) else None
    found = False
    if target is None:
        os.makedirs(dst_url, exist_ok=True)
    for entry in _chosen(source, names):
        found = True
        name = entry.key[len(source.directory) :]
        if target:
            key = f"{target.directory}{name}"
            parallel.start(_objects.copy, (source.bucket, entry.key), (target.bucket, key))
        else:
            downloads.add(source.bucket, entry, _below(dst_url, name))
    if not found and not _objects.has_bucket(source.bucket):
        raise not_exists(src_url)


def _below(directory: str, name: str) -> str:
    """Where an object goes. Names of objects may have any parts, and a bucket is not always one's own.

    Raises ValueError.
    """
    parts = name.split("/")
    if ".." in parts or "\0" in name:
        raise ValueError(f"{name!r} would not be below {directory}: copy the object by its own name")
    kept = [part for part in parts if part not in ("", ".")]
    return os.path.join(directory, *kept) + ("/" if not kept or name.endswith("/") else "")


def _chosen(source: Place, names: Optional[Iterable[str]]) -> Iterator[Object]:
    if names is None:
        for page in _objects.listing(source.bucket, source.directory):
            yield from page.objects
        return
    for name in names:
        key = f"{source.directory}{name.lstrip('/')}"
        found = _objects.head(source.bucket, key)
        if not found:
            raise not_exists(source.url(key))
        yield found


def _from_here(parallel: Parallel, src_url: str, dst_url: str, names: Optional[Iterable[str]]) -> None:
    if names is not None:
        for name in names:
            _check_is_file(os.path.join(src_url, name))
            _send(parallel, os.path.join(src_url, name), join(dst_url, name))
        return
    for directory, _below, files in os.walk(src_url):
        inside = os.path.relpath(directory, src_url)
        inside = "" if inside == os.curdir else f"{inside}/"
        if not is_remote(dst_url):
            os.makedirs(os.path.join(dst_url, inside), exist_ok=True)
        elif not files and not _below:
            target = place(f"{dst_url.rstrip('/')}/{inside}")
            if target.key:
                parallel.start(_objects.make_directory, target.bucket, target.directory)
        for name in files:
            path = os.path.join(directory, name)
            # A link that leads nowhere, a socket and the like are not files.
            if os.path.isfile(path):
                _send(parallel, path, join(dst_url, inside + name))


def _send(parallel: Parallel, path: str, dst_url: str) -> None:
    if is_remote(dst_url):
        target = place(dst_url)
        upload(parallel, path, target.bucket, target.key)
        return
    os.makedirs(os.path.dirname(os.path.abspath(dst_url)), exist_ok=True)
    parallel.start(_copy_here, path, dst_url)


def _copy_here(path: str, target: str) -> None:
    """Raises shutil.SameFileError."""
    if os.path.exists(target) and os.path.samefile(path, target):
        raise shutil.SameFileError(f"{path!r} and {target!r} are the same file")
    with _New(target) as new:
        shutil.copyfile(path, new.path)


def _put(path: str, bucket: str, key: str) -> None:
    with open(path, "rb") as file:
        _objects.put(bucket, key, file.read())


def _is_file(url: str) -> bool:
    if not is_remote(url):
        return os.path.isfile(url)
    where = place(url)
    return (
        bool(where.key) and not where.key.endswith("/") and _objects.head(where.bucket, where.key) is not None
    )


def _check_is_file(path: str) -> None:
    if os.path.isdir(path):
        raise IsADirectoryError(21, "Is a directory: use mox.file.copy_parallel", path)
    if not os.path.exists(path):
        raise not_exists(path)


class _PartedUpload:
    def __init__(self, to: Upload, path: str, parts: int) -> None:
        self._to, self._path, self._left = to, path, parts
        self._lock = threading.Lock()

    def send(self, number: int, start: int, size: int) -> None:
        try:
            with open(self._path, "rb") as file:
                file.seek(start)
                data = file.read(size)
            if len(data) != size:
                raise OSError(f"{self._path} has become shorter while it was uploaded")
            self._to.part(number, data)
        except BaseException:
            self._to.abort()
            raise
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self._to.complete()


class _New:
    """A file that gets its name when it is whole."""

    def __init__(self, target: str) -> None:
        directory, name = os.path.split(target)
        self.target = target
        self.path = os.path.join(directory, f".{name[:200]}.moxing-{os.urandom(4).hex()}")

    def __enter__(self) -> _New:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            os.replace(self.path, self.target)
        else:
            self.remove()

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


class _Downloads:
    def __init__(self, parallel: Parallel) -> None:
        self._parallel = parallel
        self._made: Set[str] = set()

    def add(self, bucket: str, entry: Object, path: str) -> None:
        """Raises MoxFileNameDuplicateException, OSError."""
        try:
            if path.endswith("/"):
                self._make(path.rstrip("/"))
                return
            self._make(os.path.dirname(os.path.abspath(path)))
        except (FileExistsError, NotADirectoryError) as error:
            raise _duplicate(path) from error
        if os.path.isdir(path):
            raise _duplicate(path)
        if entry.size <= 2 * _RANGE:
            self._parallel.start(_fetch, bucket, entry, path)
            return
        one = _RangedDownload(bucket, entry, path)
        for start in range(0, entry.size, _RANGE):
            self._parallel.start(one.fetch, start, min(_RANGE, entry.size - start))

    def _make(self, directory: str) -> None:
        if directory not in self._made:
            os.makedirs(directory, exist_ok=True)
            self._made.add(directory)


def _duplicate(path: str) -> MoxFileNameDuplicateException:
    return MoxFileNameDuplicateException(
        f"{path} would be a file and a directory: rename one of the two objects"
    )


def _fetch(bucket: str, entry: Object, path: str) -> None:
    with _New(path) as new, open(new.path, "wb") as file:
        if entry.size:
            _objects.get(bucket, entry.key, file.write)


class _RangedDownload:
    def __init__(self, bucket: str, entry: Object, path: str) -> None:
        self._bucket, self._entry = bucket, entry
        self._new = _New(path)
        self._left = entry.size
        self._lock = threading.Lock()
        with open(self._new.path, "wb") as file:
            file.truncate(entry.size)

    def fetch(self, start: int, size: int) -> None:
        try:
            with open(self._new.path, "r+b") as file:
                file.seek(start)
                _objects.get(self._bucket, self._entry.key, file.write, start, size, self._entry.etag)
        except BaseException:
            self._new.remove()
            raise
        with self._lock:
            self._left -= size
            last = not self._left
        if last:
            self._new.__exit__(None)


def list_keys(where: Place) -> List[Tuple[str, int]]:
    """The keys below it, with their sizes."""
    pages = _objects.listing(where.bucket, where.directory)
    return [(entry.key, entry.size) for page in pages for entry in page.objects]
