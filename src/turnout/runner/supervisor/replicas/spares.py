"""Directories of replicas, made before they are needed and moved into place by a rename.

On some file systems creating files is the most expensive part of a start, so it is done while the supervisor is idle.
Each directory is used for one replica only: a program may have passed its open files to another process, which could
then read and write the files of the next program.

A directory that is no longer needed is renamed too. The service removes it when that slows down no start: ext4 without
a journal steps over every inode that was freed in the last minutes.
"""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator

from ..chaos import kill_point
from ..diagnostics import Outage, log_message
from ..loop import Loop
from . import users
from .batches import Batches
from .spare_maker import SpareMaker

SPACE = "space"
"""Everything that is removed when a replica is forgotten. The logs lie beside it and stay."""
WORKSPACE = (f"{SPACE}/work", f"{SPACE}/tmp")
"""The directories that the user's program may write to."""
SCRATCH = f"{SPACE}/scratch"
"""More of them, for programs that need directories at certain paths; mostly it does not exist."""
BOX = f"{SPACE}/box"
"""Files of the sandbox: `hosts`, bubblewrap's `status`, and in `out` the pipes behind /dev/stdout and /dev/stderr."""
PENDING = f"{SPACE}/pending"
"""Without a sandbox: a file of one byte, which the replica's process empties before its exec.

The supervisor's lock is free only when none of its children is on the way to its exec. So a supervisor that takes over
and finds the byte knows that the program never ran and never will.
"""
NEW, GONE = ".new", ".gone"
"""Below `attempts`: spares, and directories for the service to remove."""
ATTEMPTS_MODE = 0o711
"""Mode of `attempts` where jobs have users of their own: they can enter their directory, and cannot list the others."""

PIPES = ("stdout", "stderr")
_MODE = 0o755
_MODE_OWN, _MODE_LOG = 0o750, 0o640
_MODE_SHARED, _MODE_SHARED_LOG = 0o770, 0o660
"""For jobs with another user: the files belong to that user's group."""
_READY = 32
_FEW, _LOW = 2, 16
"""A user who has fewer than `_FEW` gets more even shortly after a start, and one who takes one of the last `_LOW` at
once, from the maker.
"""
_USERS = 16
"""Spares are kept for this many recent users; the longer ago their last job, the fewer spares."""
_PAUSE = 1.0
_SERVICE_SECONDS, _POLL_SECONDS = 3.0, 0.005
QUIET = 0.02
"""Seconds after a start in which spares are made only if there are few, because making them would slow the new job
down.
"""


class Spares:
    """`sandbox`: replicas run in sandboxes."""

    def __init__(self, attempts: str, sandbox: bool) -> None:
        self._attempts = attempts
        self._new, self._gone = f"{attempts}/{NEW}", f"{attempts}/{GONE}"
        self._sandbox = sandbox
        self._ready: dict[int, list[str]] = {}
        """Spares by user; the user of the latest job comes last."""
        self._count = 0
        self._waited_in_vain = False
        self._outage = Outage(f"no directory can be made below {attempts}")
        self._not_before = 0.0
        self._quiet_from = 0.0
        _mkdir(self._gone, 0o700)
        # Removes the spares of an earlier supervisor.
        self._maker: SpareMaker | None = None
        self.close()
        self._batches = self._make_batches()

    def use_maker(self, loop: Loop, watch_helper: Callable[[int], None]) -> None:
        """From now on another process makes most spares. `watch_helper` gets its id."""
        self._maker = SpareMaker(loop, watch_helper, self._make_in_maker, self._add, self._failed)

    def prepare(self) -> bool:
        """Makes one spare if there are too few, or orders all that are missing. Called when the supervisor is idle.

        Returns whether it should be called again.
        """
        now = time.monotonic()
        user, missing = self._user_in_need(now < self._quiet_from)
        if not missing or (self._outage.active and now < self._not_before):
            return False
        if self._maker and not self._outage.active:
            self._maker.order(user, missing)
            return False
        try:
            if self._outage.active and not os.path.exists(self._batches.current):
                self._recreate(0)
            self._ready.setdefault(user, []).append(self._make(user))
        except OSError as error:
            self._failed(error)
            return False
        self._outage.recovered()
        return True

    def take(self, directory: str, user: int) -> None:
        """Moves a spare to `directory`: an empty workspace and two empty logs. Raises OSError."""
        self._quiet_from = time.monotonic() + QUIET
        ready = self._spares_of(user)
        if self._maker and self._maker.running and len(ready) < _LOW:
            self._maker.receive()
            if len(ready) + self._maker.ordered[user] < _LOW:
                self._maker.order(user, _LOW)
        if ready and _renamed(ready.pop(), directory):
            return
        if not os.path.exists(self._batches.current):
            self._recreate(_SERVICE_SECONDS)
        if os.path.exists(directory):
            self.complete(directory, user)
        else:
            # Complete or not at all: a supervisor that takes over never finds half a directory.
            os.rename(self._make(user), directory)

    def complete(self, directory: str, user: int) -> None:
        """Makes what is missing in a directory. Raises OSError.

        The directory, its logs and `space` belong to the supervisor, so that no job can replace them.
        """
        shared = user != users.OWN
        with _exact_modes(), users.with_group_of(user):
            _mkdir(directory, _MODE_OWN)
            _mkdir(f"{directory}/{SPACE}", _MODE_SHARED if shared else _MODE_OWN)
            for name in PIPES:
                _touch(f"{directory}/{name}", _MODE_SHARED_LOG if shared else _MODE_LOG)
        with users.acting_as(user):
            for name in WORKSPACE:
                _mkdir(f"{directory}/{name}")
            if self._sandbox:
                box = f"{directory}/{BOX}"
                make_pipes(box + "/out")
                for name in ("status", "hosts"):
                    _touch(f"{box}/{name}", _MODE_LOG)
            else:
                # If it cannot be made, the start goes on without it.
                with contextlib.suppress(OSError):
                    _make_pending(f"{directory}/{PENDING}")

    def discard(self, directory: str, logs: bool) -> None:
        """Removes everything but the logs; without `logs` those too."""
        path = directory if not logs else f"{directory}/{SPACE}"
        # It is already removed, or is being removed.
        with contextlib.suppress(OSError):
            os.rename(path, self._name(self._gone))

    def close(self) -> None:
        if self._maker:
            self._maker.close()
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._new, self._name(self._gone))

    def _user_in_need(self, quiet: bool) -> tuple[int, int]:
        """The user who needs spares most, and how many."""
        if not self._ready and not users.uids():
            self._ready[users.OWN] = []
        wanted = _READY
        for user, ready in reversed(self._ready.items()):
            ordered = self._maker.ordered[user] if self._maker else 0
            missing = (_FEW if quiet else max(wanted, _FEW)) - len(ready) - ordered
            if missing > 0:
                return user, missing
            wanted //= 2
        return users.OWN, 0

    def _failed(self, error: OSError) -> None:
        self._outage.failed(error)
        self._not_before = time.monotonic() + _PAUSE

    def _add(self, user: int, path: str) -> None:
        """The maker has made a spare."""
        if user in self._ready:
            self._ready[user].append(path)
        else:
            self.discard(path, logs=False)

    def _spares_of(self, user: int) -> list[str]:
        """The spares of a user who starts a job now."""
        ready = self._ready[user] = self._ready.pop(user, [])
        if len(self._ready) > _USERS:
            for path in self._ready.pop(next(iter(self._ready))):
                self.discard(path, logs=False)
        return ready

    def _recreate(self, patience: float) -> None:
        """Makes the directories anew after somebody removed them. Raises OSError.

        Only the service may be allowed to make the one above them. It notices too, so this waits `patience` seconds for
        it, but only once.
        """
        until = time.monotonic() + (0 if self._waited_in_vain else patience)
        while True:
            try:
                _mkdir(self._attempts, ATTEMPTS_MODE if users.uids() else 0o700)
                break
            except PermissionError:
                if time.monotonic() >= until:
                    self._waited_in_vain = self._waited_in_vain or patience > 0
                    raise
            time.sleep(_POLL_SECONDS)
        self._waited_in_vain = False
        self._ready.clear()
        _mkdir(self._gone, 0o700)
        self._batches = self._make_batches()
        log_message(f"the directories below {self._attempts} were removed; they are made again")

    def _name(self, above: str) -> str:
        """A name that no other process uses, earlier or later."""
        self._count += 1
        return f"{above}/{time.time_ns()}-{os.getpid()}-{self._count}"

    def _make(self, user: int) -> str:
        """Makes a new spare. Raises OSError."""
        path = self._name(self._batches.current)
        with self._batches.measured():
            try:
                self.complete(path, user)
            except OSError:
                self.discard(path, logs=False)
                raise
        return path

    def _make_in_maker(self, user: int) -> str:
        """The maker has its own batches."""
        if self._maker:
            self._maker, self._batches = None, self._make_batches()
        return self._make(user)

    def _make_batches(self) -> Batches:
        mode = ATTEMPTS_MODE if users.uids() else 0o700
        _mkdir(self._new, mode)
        return Batches(self._new, mode)


def make_directories(directory: str, dirs: tuple[str, ...], user: int) -> None:
    """Makes further directories of a replica, outer ones first. Raises OSError."""
    kill_point("supervisor.moved_in")
    if dirs:
        with users.acting_as(user):
            for name in dirs:
                _mkdir(f"{directory}/{name}")


def is_pending(directory: str) -> bool:
    """Whether PENDING is there and no process has emptied it."""
    try:
        status = os.lstat(f"{directory}/{PENDING}")
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == 1


def make_pipes(out: str) -> None:
    """Makes missing pipes and the directories that contain them. Raises OSError."""
    _mkdir(os.path.dirname(out))
    _mkdir(out)
    for name in PIPES:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(f"{out}/{name}", 0o600)


def _make_pending(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _MODE_LOG)
    try:
        os.ftruncate(fd, 1)
    finally:
        os.close(fd)


def _touch(path: str, mode: int) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode))


@contextlib.contextmanager
def _exact_modes() -> Iterator[None]:
    """The umask takes nothing from the modes of what is made inside."""
    umask = os.umask(0)
    try:
        yield
    finally:
        os.umask(umask)


def _renamed(path: str, to: str) -> bool:
    try:
        os.rename(path, to)
    except OSError:
        return False
    return True


def _mkdir(path: str, mode: int = _MODE) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
