"""Directories of replicas, made before they are wanted and moved into place by a rename.

To make files is the dearest part of a start on some file systems (ext4 steps over every inode that was freed in the
last minutes), so it is done while there is nothing else to do, and what is empty at the end is used again: the whole
directory of a replica that has printed and left nothing, else its workspace, also where that holds empty directories
which the next one of its kind will want.
"""

import contextlib
import itertools
import os
import shutil
import stat
import time

from .say import Outage

WORKSPACE = ("work", "tmp")
"""What the user's program may write into: it goes when the replica is forgotten, the logs stay."""
SCRATCH = "scratch"
"""More of that kind, for programs that want directories of their own at certain places; mostly it is not there."""
BOX = "box"
"""What a sandbox needs: its `hosts`, bubblewrap's `status`, in `out` the pipes that are /dev/stdout and /dev/stderr."""

PIPES = ("stdout", "stderr")
_MODE = 0o755
_MODE_ALL, _MODE_LOG = 0o750, 0o640
_READY = 8
_FEW = 2
_EMPTY = 64
_KINDS = 4
_PAUSE = 1.0
QUIET = 0.02
"""For so long after a start spares are made only if there are few: it would slow down what has just been started."""


class Spares:
    """Everything of ours below `attempts` has a name that begins with a dot."""

    def __init__(self, attempts: str, boxes: bool) -> None:
        self._attempts = attempts
        self._with_boxes = boxes
        self._ready: list[str] = []
        self._empty: list[str] = []
        self._boxes: list[str] = []
        self._laid_out: dict[tuple[str, ...], list[str]] = {}
        self._count = 0
        self._outage = Outage(f"no directory can be made below {attempts}")
        self._not_before = 0.0
        self._quiet_from = 0.0
        for name in os.listdir(attempts):
            if name.startswith("."):
                shutil.rmtree(f"{attempts}/{name}", ignore_errors=True)

    def furnish(self) -> bool:
        """Makes one more, if there are too few. Called when there is nothing else to do."""
        there, now = len(self._ready), time.monotonic()
        if there >= _READY or (there >= _FEW and now < self._quiet_from):
            return False
        if self._outage.on and now < self._not_before:
            return False
        try:
            self._ready.append(self._made())
        except OSError as error:
            self._outage.failed(error)
            self._not_before = time.monotonic() + _PAUSE
            return False
        self._outage.over()
        return True

    def move_in(self, directory: str) -> None:
        """`directory` is there afterwards, with an empty workspace and two empty logs. Raises OSError."""
        self._quiet_from = time.monotonic() + QUIET
        if self._ready and _moved(self._ready.pop(), directory):
            return
        if not os.path.exists(directory):
            # Whole or not at all: who takes over from a keeper that was killed finds no half of it.
            os.rename(self._made(), directory)
            return
        self._fill(directory)

    def lay_out(self, directory: str, dirs: tuple[str, ...]) -> None:
        """Those that a replica wants besides, outer ones first. Raises OSError."""
        if self._laid_out.get(dirs):
            place = f"{directory}/{_outermost(dirs)}"
            if self.take_back(place) and _moved(self._laid_out[dirs].pop(), place):
                return
        for name in dirs:
            _mkdir(f"{directory}/{name}")

    def take_back_laid_out(self, directory: str, dirs: tuple[str, ...]) -> None:
        """What `lay_out` made, if nothing has come into it."""
        if not (place := _outermost(dirs)):
            return
        with contextlib.suppress(OSError):
            if _holds_only(directory, dirs):
                if dirs not in self._laid_out and len(self._laid_out) >= _KINDS:
                    for path in self._laid_out.pop(next(iter(self._laid_out))):
                        shutil.rmtree(path, ignore_errors=True)
                self._keep(f"{directory}/{place}", self._laid_out.setdefault(dirs, []), _READY)

    def take_back_all(self, directory: str) -> bool:
        """A replica's directory, if it is as it was at first: then there is nothing in it that anybody could miss."""
        if len(self._ready) >= _EMPTY:
            return False
        try:
            if not self._as_made(directory):
                return False
            if self._with_boxes:
                os.truncate(f"{directory}/{BOX}/status", 0)
            name = self._name()
            os.rename(directory, name)
        except OSError:
            return False
        self._ready.append(name)
        return True

    def take_back(self, path: str) -> bool:
        """A directory of a workspace that is not needed any more; False if it is not as it was at first."""
        try:
            return _is_empty(path) and self._keep(path, self._empty)
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def take_back_box(self, path: str) -> None:
        """Its status goes at once: whoever gets the box next must never be taken for the one before."""
        with contextlib.suppress(OSError):
            os.truncate(path + "/status", 0)
            whole = len(os.listdir(path + "/out")) == len(PIPES)
            if not whole or not self._keep(path, self._boxes):
                shutil.rmtree(path)

    def close(self) -> None:
        for path in itertools.chain(self._ready, self._empty, self._boxes, *self._laid_out.values()):
            shutil.rmtree(path, ignore_errors=True)

    def _as_made(self, directory: str) -> bool:
        """Raises OSError if something is missing."""
        names = {*WORKSPACE, *PIPES, BOX} if self._with_boxes else {*WORKSPACE, *PIPES}
        if set(os.listdir(directory)) != names or _mode(directory) != stat.S_IFDIR | _MODE_ALL:
            return False
        if self._with_boxes and len(os.listdir(f"{directory}/{BOX}/out")) != len(PIPES):
            return False
        return all(_is_empty(f"{directory}/{name}") for name in WORKSPACE) and all(
            _is_unwritten(f"{directory}/{name}") for name in PIPES
        )

    def _keep(self, path: str, pool: list[str], most: int = _EMPTY) -> bool:
        if len(pool) >= most:
            return False
        name = self._name()
        os.rename(path, name)
        if os.path.exists(os.path.dirname(path)):
            pool.append(name)
        else:
            # The service was removing the whole and may have begun inside: it moves a directory away before that,
            # so what came out of one that is still in its place is untouched.
            shutil.rmtree(name, ignore_errors=True)
        return True

    def _name(self) -> str:
        self._count += 1
        return f"{self._attempts}/.{os.getpid()}-{self._count}"

    def _made(self) -> str:
        """A new one, under a name of ours. Raises OSError, and leaves nothing behind then."""
        path = self._name()
        try:
            self._fill(path)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return path

    def _fill(self, directory: str) -> None:
        """Whatever is there already stays, whatever is missing is made."""
        _mkdir(directory, _MODE_ALL)
        for name in WORKSPACE:
            if self._empty:
                _moved(self._empty.pop(), f"{directory}/{name}")
        if self._with_boxes and self._boxes:
            _moved(self._boxes.pop(), f"{directory}/{BOX}")
        self.mend(directory)

    def mend(self, directory: str) -> None:
        """One that was moved into before: what is missing in it is made. Raises OSError."""
        for name in WORKSPACE:
            _mkdir(f"{directory}/{name}")
        if self._with_boxes:
            box = f"{directory}/{BOX}"
            make_pipes(box + "/out")
            for name in ("status", "hosts"):
                _touch(f"{box}/{name}")
        for name in PIPES:
            _touch(f"{directory}/{name}")


def make_pipes(out: str) -> None:
    """Those that are missing, and the directories they are in. Raises OSError."""
    _mkdir(os.path.dirname(out))
    _mkdir(out)
    for name in PIPES:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(f"{out}/{name}", 0o600)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _MODE_LOG))


def _mode(path: str) -> int:
    return os.lstat(path).st_mode


def _is_empty(path: str) -> bool:
    return _mode(path) == stat.S_IFDIR | _MODE and not os.listdir(path)


def _outermost(dirs: tuple[str, ...]) -> str:
    """The one that they are all in; empty if there is none."""
    first = {name.partition("/")[0] for name in dirs}
    return first.pop() if len(first) == 1 else ""


def _holds_only(directory: str, dirs: tuple[str, ...]) -> bool:
    """Whether there is nothing in the outermost of them but these directories. Raises OSError."""
    inside: dict[str, set[str]] = {_outermost(dirs): set()}
    for name in dirs:
        outer, _, inner = name.rpartition("/")
        inside.setdefault(name, set())
        if outer:
            inside.setdefault(outer, set()).add(inner)
    return all(
        _mode(f"{directory}/{name}") == stat.S_IFDIR | _MODE
        and set(os.listdir(f"{directory}/{name}")) == names
        for name, names in inside.items()
    )


def _is_unwritten(path: str) -> bool:
    about = os.lstat(path)
    return about.st_mode == stat.S_IFREG | _MODE_LOG and about.st_size == 0 and about.st_nlink == 1


def _moved(path: str, to: str) -> bool:
    try:
        os.rename(path, to)
    except OSError:
        return False
    return True


def _mkdir(path: str, mode: int = _MODE) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
