"""Fetches the objects of the mounts before the program starts.

An object gets its name only when it is complete. What arrived before a connection broke is not fetched again.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import checksum
from .connection import Gateway
from .errors import Cancelled, StagingError
from .home import INCOMING, Home
from .plan import Mount
from .transfer import Changed, Denied, DiskError, Expired, Missing, SignedRequest, TransferError, Transfers

THREADS = 4
BIG, RANGE = 64 << 20, 16 << 20
"""Larger objects are fetched in ranges of this size."""
_WITHOUT_PROGRESS = 900.0
"""Seconds for which a transfer that gets no byte is tried again."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 15.0
_CHANGES = 5
_NO_NAME = re.compile(r"\x00|^/|//|(?:^|/)\.\.?(?:/|$)")


class Found(NamedTuple):
    key: str
    size: int
    etag: str
    crc32c: str
    get: SignedRequest


class Page:
    """A part of the list of a mount's objects. Its requests are renewed when they have expired."""

    def __init__(self, gateway: Gateway, mount: Mount, after: str) -> None:
        self._gateway = gateway
        self._mount = mount
        self._after = after
        self._lock = threading.Lock()
        self._renewed_at = time.monotonic()
        self.missing, self.next, found = self._list()
        self.keys = list(found)
        self._found = found

    def __getitem__(self, key: str) -> Found:
        with self._lock:
            return self._found[key]

    def renew(self, since: float) -> None:
        """Lists again, unless another thread has done that after `since`."""
        with self._lock:
            if self._renewed_at > since:
                return
            _, _, found = self._list()
            self._found.update(found)
            self._renewed_at = time.monotonic()

    def _list(self) -> Tuple[str, str, Dict[str, Found]]:
        body = {"op": "list", "mount": self._mount.number, "after": self._after}
        answer = self._gateway.call("stage", body)
        objects = [_decode(item) for item in answer.get("objects") or []]
        return answer.get("missing") or "", answer.get("after") or "", {found.key: found for found in objects}


class Fetch:
    """Fetches all mounts. `fetched` is called with the path and the mount of each new file."""

    def __init__(self, gateway: Gateway, home: Home, fetched: Callable[[Mount, str], None]) -> None:
        self._gateway = gateway
        self._home = home
        self._fetched = fetched
        self._transfers = Transfers(gateway)
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def run(self, mounts: List[Mount]) -> None:
        """Raises StagingError, Cancelled or RunnerError."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="fetch") as pool:
            try:
                for mount in mounts:
                    if mount.fetch:
                        self._mount(mount, pool)
            except BaseException:
                self.cancel()  # the other threads
                raise

    def _mount(self, mount: Mount, pool: ThreadPoolExecutor) -> None:
        after = ""
        while True:
            page = Page(self._gateway, mount, after)
            if page.missing:
                if not mount.optional:
                    raise StagingError(page.missing)
                return
            self._page(mount, page, pool)
            after = page.next
            if not after:
                break
        for name in mount.files:
            if not os.path.isfile(os.path.join(self._home / mount.directory, name)):
                raise StagingError(f"there is no file '{mount.name(name)}'")

    def _page(self, mount: Mount, page: Page, pool: ThreadPoolExecutor) -> None:
        small: List[Future[None]] = []
        for key in page.keys:
            if _NO_NAME.search(key):
                raise StagingError(f"the object {mount.name(key)!r} has a name that no file can have")
            if key.endswith("/"):
                self._make_directory(mount, key)
            elif page[key].size > BIG:
                self._object(mount, page, key, pool)
            else:
                small.append(pool.submit(self._object, mount, page, key, None))
        for future in small:
            future.result()

    def _make_directory(self, mount: Mount, key: str) -> None:
        try:
            os.makedirs(os.path.join(self._home / mount.directory, key), mode=0o700, exist_ok=True)
        except OSError as error:
            raise _no_file(mount, key, error) from None

    def _object(self, mount: Mount, page: Page, key: str, pool: Optional[ThreadPoolExecutor]) -> None:
        temporary = self._home / f"{INCOMING}/{mount.number}-{threading.get_ident()}-{time.monotonic_ns()}"
        final = os.path.join(self._home / mount.directory, key)
        odd = ""
        for _ in range(_CHANGES):
            if self._cancelled.is_set():
                raise Cancelled
            begun, found = time.monotonic(), page[key]
            try:
                with _opened(temporary, found.size) as fd:
                    self._ranges(page, key, fd, found.size, pool)
                    right, digest = _check(fd, found)
                    # Some stores put something into the ETag that only looks like an MD5. If it is the same twice, the
                    # bytes are right.
                    if not right and digest != odd:
                        odd = digest
                        continue
                os.makedirs(os.path.dirname(final), mode=0o700, exist_ok=True)
                os.rename(temporary, final)
                return self._fetched(mount, final)
            except Changed:
                page.renew(begun)
            except Missing:
                raise StagingError(
                    f"the object '{mount.name(key)}' was deleted while it was fetched"
                ) from None
            except (Denied, TransferError) as error:
                raise StagingError(f"the object '{mount.name(key)}' cannot be fetched: {error}") from None
            except (DiskError, OSError) as error:
                raise _no_file(mount, key, error) from None
        raise StagingError(f"the object '{mount.name(key)}' changed or was damaged each time it was fetched")

    def _ranges(self, page: Page, key: str, fd: int, size: int, pool: Optional[ThreadPoolExecutor]) -> None:
        if pool is None:
            return self._range(page, key, fd, 0, size, size)
        starts = range(0, size, RANGE)
        parts = [pool.submit(self._range, page, key, fd, at, min(at + RANGE, size), size) for at in starts]
        # All have to end before the file is closed.
        errors = [part.exception() for part in parts]
        for error in errors:
            if error:
                raise error
        return None

    def _range(self, page: Page, key: str, fd: int, start: int, end: int, whole: int) -> None:
        progress, pause = time.monotonic(), _FIRST_PAUSE
        while start < end:
            tried = time.monotonic()
            found = page[key]
            if found.size != whole:
                raise Changed
            try:
                for reached in self._transfers.get(found.get, fd, start, end, whole):
                    start, progress, pause = reached, time.monotonic(), _FIRST_PAUSE
                    if self._cancelled.is_set():
                        raise Cancelled
            except TransferError as error:
                if time.monotonic() - progress > _WITHOUT_PROGRESS:
                    raise
                if isinstance(error, Expired):
                    page.renew(tried)
                if self._cancelled.wait(pause * random.uniform(0.5, 1)):
                    raise Cancelled from None
                pause = min(2 * pause, _LONGEST_PAUSE)


def _decode(document: Dict[str, Any]) -> Found:
    return Found(
        document["key"],
        int(document["size"]),
        document.get("etag") or "",
        document.get("crc32c") or "",
        SignedRequest.decode(document["get"]),
    )


def _check(fd: int, found: Found) -> Tuple[bool, str]:
    """Whether the file is what the store has, and its MD5 if that says no."""
    if not checksum.is_crc32c(fd, found.size, found.crc32c):
        return False, ""
    expected = "" if found.crc32c else checksum.md5_in(found.etag)
    digest = checksum.md5(fd, found.size) if expected else ""
    return digest == expected or not digest, digest


@contextlib.contextmanager
def _opened(path: str, size: int) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, size)
        yield fd
    finally:
        os.close(fd)


def _no_file(mount: Mount, key: str, error: Exception) -> StagingError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return StagingError(f"the object '{mount.name(key)}' cannot be written to a file here: {reason}")
