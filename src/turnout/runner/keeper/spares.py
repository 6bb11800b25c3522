"""Directories of replicas, made before they are wanted and moved into place by a rename.

To make files is the dearest part of a start on some file systems (ext4 steps over every inode that was freed in the
last minutes), so it is done while there is nothing else to do, and what is empty at the end is used again.
"""

import contextlib
import os
import shutil

WORKSPACE = ("work", "tmp")
"""What the user's program may write into: it goes when the replica is forgotten, the logs stay."""
BOX = "box"
"""What a sandbox needs: bubblewrap's `status`, and `out` with the pipes that are its /dev/stdout and /dev/stderr."""

_PIPES = ("stdout", "stderr")
_MODE = 0o755
_READY = 8
_EMPTY = 64


class Spares:
    """Everything of ours below `attempts` has a name that begins with a dot."""

    def __init__(self, attempts: str, boxes: bool) -> None:
        self._attempts = attempts
        self._with_boxes = boxes
        self._ready: list[str] = []
        self._empty: list[str] = []
        self._boxes: list[str] = []
        self._count = 0
        for name in os.listdir(attempts):
            if name.startswith("."):
                shutil.rmtree(f"{attempts}/{name}", ignore_errors=True)

    def furnish(self) -> bool:
        """Makes one more, if there are too few. Called when there is nothing else to do."""
        if len(self._ready) >= _READY:
            return False
        path = self._name()
        self._make(path)
        self._ready.append(path)
        return True

    def move_in(self, directory: str) -> None:
        """`directory` is there afterwards, with an empty workspace and two empty logs."""
        if self._ready:
            with contextlib.suppress(OSError):
                os.rename(self._ready[-1], directory)
                self._ready.pop()
                return
        self._make(directory)

    def take_back(self, path: str) -> bool:
        """A directory of a workspace that is not needed any more; False if it is not as it was at first."""
        try:
            as_made = os.stat(path).st_mode & 0o7777 == _MODE and not os.listdir(path)
            return as_made and self._keep(path, self._empty)
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def take_back_box(self, path: str) -> None:
        """Its status goes at once: whoever gets the box next must never be taken for the one before."""
        with contextlib.suppress(OSError):
            os.truncate(path + "/status", 0)
            whole = len(os.listdir(path + "/out")) == len(_PIPES)
            if not whole or not self._keep(path, self._boxes):
                shutil.rmtree(path)

    def close(self) -> None:
        for path in (*self._ready, *self._empty, *self._boxes):
            shutil.rmtree(path, ignore_errors=True)

    def _keep(self, path: str, pool: list[str]) -> bool:
        if len(pool) >= _EMPTY:
            return False
        name = self._name()
        os.rename(path, name)
        pool.append(name)
        return True

    def _name(self) -> str:
        self._count += 1
        return f"{self._attempts}/.{self._count}"

    def _make(self, directory: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o750)
        for name in WORKSPACE:
            if not self._empty or not _moved(self._empty.pop(), f"{directory}/{name}"):
                _mkdir(f"{directory}/{name}")
        box = f"{directory}/{BOX}"
        if self._with_boxes and (not self._boxes or not _moved(self._boxes.pop(), box)):
            for path in (box, box + "/out"):
                _mkdir(path)
            for name in _PIPES:
                with contextlib.suppress(FileExistsError):
                    os.mkfifo(f"{box}/out/{name}", 0o600)
        for name in ("stdout", "stderr"):
            os.close(os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640))


def _moved(path: str, to: str) -> bool:
    try:
        os.rename(path, to)
    except OSError:
        return False
    return True


def _mkdir(path: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, _MODE)
