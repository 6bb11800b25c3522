"""Removes the files of jobs that are not needed any more, in a thread.

The supervisor and the service move them into a trash directory (`.gone`). Everything in there is removed, if need be
by the next service. Files that take space are removed at once. Replicas that wrote nothing leave empty directories;
these are removed when no job has started or ended for a while, because ext4 without a journal creates inodes slowly
after others were freed.
"""

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from turnout.runner.supervisor.disk.remove import remove
from turnout.runner.supervisor.replicas.roots import ROOT
from turnout.runner.supervisor.replicas.spares import GONE, SCRATCH, SPACE, WORKSPACE

_log = logging.getLogger(__name__)

_BATCH_SECONDS = 1.0
"""Attempts that are forgotten within this time are removed together."""
_QUIET_SECONDS = 30.0
"""Empty directories wait until no job has started or ended for so long."""
_MOST_EMPTY = 20_000
"""How many empty directories may wait."""


class Trash:
    def __init__(self, attempts: Path, *others: Path) -> None:
        """The directories that `remove` searches. Each has a trash directory on its own file system."""
        self._attempts = attempts
        self._directories = (attempts, *others)
        self._work = threading.Event()
        self._to_remove: deque[set[str]] = deque()
        self._active_at = time.monotonic()
        self._empty: dict[str, None] = {}
        """The empty directories of replicas in the trash of `attempts`."""
        self._failed: set[str] = set()
        self._closed = False

    def start(self) -> None:
        self._work.set()  # the last service may have left something
        threading.Thread(target=self._run, name="trash", daemon=True).start()

    def close(self) -> None:
        """The next service removes the rest."""
        self._closed = True
        self._work.set()

    def postpone(self) -> None:
        """A job has just started: empty directories wait."""
        self._active_at = time.monotonic()

    def expect(self) -> None:
        """The supervisor is about to move something into the trash."""
        self._active_at = time.monotonic()
        self._work.set()

    def remove(self, attempts: set[str]) -> None:
        """Everything that is named `<attempt>` or `<attempt>_<replica>`."""
        self._to_remove.append(attempts)
        self._work.set()

    def _run(self) -> None:
        failures = 0
        while not self._closed:
            try:
                self._work.wait(_QUIET_SECONDS if self._empty else None)
                time.sleep(_BATCH_SECONDS)
                self._work.clear()
                self._empty_all()
                failures = 0
            except Exception:  # noqa: BLE001
                # Whatever fails, even the waiting: this is the only thread that removes anything.
                failures += 1
                self._retry(failures)

    def _retry(self, times: int) -> None:
        with contextlib.suppress(Exception):
            _log.exception("cannot remove files of ended jobs; trying again")
        self._work.set()
        with contextlib.suppress(Exception):
            # Not time.sleep, which may be what fails.
            select.select([], [], [], min(_QUIET_SECONDS, _BATCH_SECONDS * 2 ** min(times, 10)))

    def _empty_all(self) -> None:
        while waiting := len(self._to_remove):
            # Together, because each look at the directories takes as long as there are logs.
            attempts = set[str]().union(*(self._to_remove[number] for number in range(waiting)))
            for directory in self._directories:
                _log_errors(partial(_move_to_trash, attempts=attempts), directory)
            for _ in range(waiting):
                self._to_remove.popleft()
        for directory in self._directories:
            _log_errors(self._empty_trash, directory / GONE)
        while self._empty and (self._is_quiet() or len(self._empty) > _MOST_EMPTY):
            name = next(iter(self._empty))
            del self._empty[name]
            with _opened(self._attempts / GONE) as gone:
                self._remove(name, gone)

    def _empty_trash(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError), _opened(path) as gone:
            for name in os.listdir(gone):
                if name in self._empty or name in self._failed:
                    continue
                if path.parent == self._attempts and _is_empty(name, gone):
                    self._empty[name] = None
                else:
                    self._remove(name, gone)

    def _remove(self, name: str, gone: int) -> None:
        try:
            remove(name, gone)
        except Exception as error:  # noqa: BLE001
            # Whatever is wrong with this tree, the others are removed. The next service tries it again.
            self._failed.add(name)
            _log.warning("cannot remove %s: %s", name, error)

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._active_at >= _QUIET_SECONDS


def _log_errors(do: Callable[[Path], None], directory: Path) -> None:
    """An error in one directory must not keep the others from being emptied."""
    try:
        do(directory)
    except OSError as error:
        _log.warning("cannot remove files in %s: %s", directory, error)


def _move_to_trash(directory: Path, attempts: set[str]) -> None:
    """A rename is atomic: nobody finds half an attempt, and the next service can continue."""
    with contextlib.suppress(FileNotFoundError), _opened(directory) as here:
        names = [name for name in os.listdir(here) if name.partition("_")[0] in attempts]
        if not names:
            return
        with contextlib.suppress(FileExistsError):
            os.mkdir(GONE, 0o700, dir_fd=here)
        with _opened(GONE, here) as gone:
            for name in names:
                with contextlib.suppress(OSError):
                    new = f"{time.time_ns()}-{name}"
                    os.rename(name, new, src_dir_fd=here, dst_dir_fd=gone)


def _is_empty(name: str, gone: int) -> bool:
    """Whether it is a replica's directory to which the job added nothing."""
    try:
        with _opened(name, gone) as replica:
            inside = os.listdir(replica)
            if SPACE not in inside:
                return _is_unused(replica)
            with _opened(SPACE, replica) as space:
                return _is_unused(space)
    except OSError:
        return False


def _is_unused(space: int) -> bool:
    """Raises OSError if it is not a replica's directory."""
    if {SCRATCH.partition("/")[2], ROOT.partition("/")[2]} & set(os.listdir(space)):
        return False
    for name in WORKSPACE:
        with _opened(name.partition("/")[2], space) as workspace:
            if os.listdir(workspace):
                return False
    return True


@contextlib.contextmanager
def _opened(path: str | Path, above: int | None = None) -> Iterator[int]:
    """Does not follow a link at the end of the path: jobs of earlier versions could put one there."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)
