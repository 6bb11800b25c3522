"""Uploads the files of the mounts that are new or have changed. Nothing is ever deleted in the store."""

from __future__ import annotations

import os
import random
import re
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from .connection import Gateway
from .diagnostics import say
from .errors import RunnerError
from .home import Home
from .plan import Mount
from .transfer import Changed, Denied, Expired, Missing, SignedRequest, TransferError, Transfers

_THREADS = 4
_BATCH = 500
_SETTLED_NS = 1_000_000_000
_TRIES = 5
"""For a file that changes while it is read."""
_WITHOUT_SUCCESS = 900.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 15.0
_NO_KEY = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class State(NamedTuple):
    """If it is the same, the file is the same."""

    size: int
    mtime: int
    inode: int


class Saved(NamedTuple):
    files: int
    bytes: int
    trouble: str


class Saves:
    """The saves of all mounts. One runs at a time; `totals` counts all of them."""

    def __init__(self, gateway: Gateway, home: Home, mounts: List[Mount]) -> None:
        self._gateway = gateway
        self._home = home
        self._mounts = [mount for mount in mounts if mount.save]
        self._transfers = Transfers(gateway)
        self._known: Dict[Tuple[int, str], State] = {}
        self._files = self._bytes = 0
        self._busy = threading.Lock()
        self._counting = threading.Lock()

    @property
    def period(self) -> float:
        """Seconds between two saves; 0: there is only the last one."""
        return min((mount.period for mount in self._mounts if mount.period > 0), default=0.0)

    def fetched(self, mount: Mount, path: str) -> None:
        """The file is what the store has."""
        name = os.path.relpath(path, self._home / mount.directory)
        self._known[mount.number, name] = _state(os.stat(path))

    def run(self, final: bool) -> Saved:
        """Uploads what changed. If it is not final, files that are being written wait. Raises RunnerError."""
        troubles: List[str] = []
        with self._busy, ThreadPoolExecutor(_THREADS, thread_name_prefix="save") as pool:
            for mount in self._mounts:
                if final or mount.period > 0:
                    troubles += self._mount(mount, final, pool)
        return Saved(self._files, self._bytes, "; ".join(troubles[:3]))

    def _mount(self, mount: Mount, final: bool, pool: ThreadPoolExecutor) -> List[str]:
        try:
            root = os.open(self._home / mount.directory, _DIRECTORY)
        except OSError as error:
            return [f"{mount.url} cannot be saved: {error.strerror}"]
        troubles: List[str] = []
        try:
            batch: List[Tuple[str, State]] = []
            for found in _files(root, "", troubles):
                if self._is_new(mount, *found, final=final, troubles=troubles):
                    batch.append(found)
                if len(batch) == _BATCH:
                    self._batch(mount, root, batch, final, pool, troubles)
                    batch = []
            if batch:
                self._batch(mount, root, batch, final, pool, troubles)
        finally:
            os.close(root)
        return troubles

    def _is_new(self, mount: Mount, name: str, state: State, final: bool, troubles: List[str]) -> bool:
        if self._known.get((mount.number, name)) == state:
            return False
        if _NO_KEY.search(name):
            troubles.append(f"{name!r} is not saved: an object cannot have this name")
            return False
        return final or time.time_ns() - state.mtime > _SETTLED_NS

    def _batch(
        self,
        mount: Mount,
        root: int,
        batch: List[Tuple[str, State]],
        final: bool,
        pool: ThreadPoolExecutor,
        troubles: List[str],
    ) -> None:
        requests = self._sign(mount, batch)
        jobs = [
            pool.submit(self._file, mount, root, name, request, final)
            for (name, _), request in zip(batch, requests)
        ]
        results = [(job.exception(), job) for job in jobs]  # all have to end before the directory is closed
        for error, job in results:
            if error:
                raise error
            trouble = job.result()
            if trouble:
                troubles.append(trouble)

    def _sign(self, mount: Mount, batch: List[Tuple[str, State]]) -> List[SignedRequest]:
        objects = [{"key": name, "size": state.size} for name, state in batch]
        answer = self._gateway.call("stage", {"op": "put", "mount": mount.number, "objects": objects})
        return [SignedRequest.decode(item) for item in answer["requests"]]

    def _file(
        self, mount: Mount, root: int, name: str, request: Optional[SignedRequest], final: bool
    ) -> Optional[str]:
        """Returns what went wrong. Raises RunnerError."""
        begun, pause, changes = time.monotonic(), _FIRST_PAUSE, 0
        while True:
            try:
                with open(_open_below(root, name), "rb", buffering=0) as file:
                    state = _state(os.fstat(file.fileno()))
                    if request is None:
                        request = self._sign(mount, [(name, state)])[0]
                    self._transfers.put(request, file, state.size, partial(_is_still, file.fileno(), state))
                return self._saved(mount, name, state)
            except FileNotFoundError:
                return None  # the program has removed it
            except OSError as error:
                return f"{name} cannot be read: {error.strerror}"
            except Changed:
                changes += 1
                if not final:
                    return None
                if changes == _TRIES:
                    return f"{name} changed each time it was read"
                request = None  # its size is another one
            except (Denied, Missing) as error:
                return f"{mount.name(name)} cannot be written: {str(error) or 'there is no such bucket'}"
            except TransferError as error:
                if time.monotonic() - begun > _WITHOUT_SUCCESS or (not final and pause > 1):
                    return f"{mount.name(name)} cannot be written: {error}"
                if isinstance(error, Expired):
                    request = None
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _saved(self, mount: Mount, name: str, state: State) -> None:
        with self._counting:
            self._known[mount.number, name] = state
            self._files += 1
            self._bytes += state.size


class PeriodicSaves(threading.Thread):
    """Saves now and then while the program runs."""

    def __init__(self, saves: Saves) -> None:
        super().__init__(name="saves", daemon=True)
        self._saves = saves
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self._saves.period):
            try:
                trouble = self._saves.run(final=False).trouble
            except RunnerError:
                return  # other threads see it too, and act
            if trouble:
                say(f"saving: {trouble}")

    def stop(self) -> None:
        self._stopped.set()


def _files(directory: int, prefix: str, troubles: List[str]) -> Iterator[Tuple[str, State]]:
    """All regular files below the directory. Links are not followed, so nothing outside is found."""
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        path = prefix + name
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                yield path, _state(found)
            elif stat.S_ISDIR(found.st_mode):
                below = os.open(name, _DIRECTORY, dir_fd=directory)
                try:
                    yield from _files(below, path + "/", troubles)
                finally:
                    os.close(below)
        except FileNotFoundError:
            continue
        except OSError as error:
            troubles.append(f"{path} is not saved: {error.strerror}")


def _open_below(root: int, name: str) -> int:
    """Opens a regular file without following a link on the way. Raises OSError."""
    *parents, last = name.split("/")
    here = os.dup(root)
    try:
        for part in parents:
            below = os.open(part, _DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        fd = os.open(last, _FILE, dir_fd=here)
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(name)
    return fd


def _is_still(fd: int, state: State) -> bool:
    return _state(os.fstat(fd)) == state


def _state(found: os.stat_result) -> State:
    return State(found.st_size, found.st_mtime_ns, found.st_ino)
