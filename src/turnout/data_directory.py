"""The data directory: created, locked against a second service, and watched for removals."""

import asyncio
import contextlib
import ctypes
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Self

from turnout.config import Settings
from turnout.errors import Misconfigured
from turnout.paths import Paths

_log = logging.getLogger(__name__)

_IN_MOVED, _IN_DELETE, _IN_DELETE_SELF, _IN_MOVE_SELF = 0xC0, 0x200, 0x400, 0x800
_IN_ONLYDIR, _IN_CLOEXEC, _IN_NONBLOCK = 0x01000000, 0o2000000, 0o4000
_REMOVED = _IN_MOVED | _IN_DELETE | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
_CHECK_SECONDS = 1.0
"""Seconds between checks where the kernel sends no notifications."""
_MOST_WARNINGS = 20
_MOST_BYTES = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)
_libc.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]


def prepare(settings: Settings) -> Paths:
    """Make the data directory. If the service runs as root, users of jobs may pass through it to their directories."""
    paths = Paths(settings.data)
    try:
        paths.data.mkdir(parents=True, exist_ok=True)
        wanted = 0o711 if os.geteuid() == 0 else 0o700
        if stat.S_IMODE(paths.data.stat().st_mode) != wanted:
            paths.data.chmod(wanted)
    except OSError as error:
        raise Misconfigured(f"the data directory {paths.data} cannot be used: {error.strerror}") from None
    return paths


class Lock:
    """Keeps a second service off the same data directory. Raises Misconfigured.

    The directory itself is locked, because a file in it can be removed. The file names the holder. It is locked too,
    for file systems that cannot lock directories (NFS).
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._file: IO[str] | None = None
        self._directory = -1

    def __enter__(self) -> Self:
        self._directory = os.open(self._paths.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock_directory(self._directory)
            self.write()
        except BlockingIOError:
            self.__exit__()
            raise Misconfigured(
                f"another turnout serve ({self._holder()}) uses {self._paths.data}: "
                "stop it first, or give --data another directory"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()
        if self._directory >= 0:
            os.close(self._directory)
        self._file, self._directory = None, -1

    @property
    def removed(self) -> bool:
        """Whether the file was removed or replaced."""
        assert self._file
        try:
            return not os.path.samestat(os.stat(self._paths.lock), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return True

    def write(self) -> None:
        """Creates the file, also if it was removed, and locks it. Raises BlockingIOError."""
        file = open(self._paths.lock, "a+", opener=_private)  # noqa: SIM115 it stays open as long as the lock is held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            file.write(f"process {os.getpid()}")
            file.flush()
        except OSError:
            file.close()
            raise
        if self._file:
            self._file.close()
        self._file = file

    def _holder(self) -> str:
        try:
            return self._paths.lock.read_text().strip() or "another process"
        except OSError:
            return "its lock file was removed"


class Removals:
    """Notices when a file or directory that the service uses is removed from the data directory.

    It recreates the lock file, and directories with their owner and mode, so that new jobs can start. It cannot
    recreate the database and the supervisor's files. Each removal is logged, added to `warnings`, which `/healthz`
    shows, and written to a file that `turnout doctor` reads. If the database was removed, `database_removed` is called
    with the warning.
    """

    def __init__(self, paths: Paths, lock: Lock) -> None:
        self._paths = paths
        self._lock = lock
        self._fd = -1
        self._directories: dict[Path, os.stat_result] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._second_check: asyncio.TimerHandle | None = None
        self._data_removed = False
        self._failure = ""
        self._database_files: dict[Path, os.stat_result] = {}
        """The database and its write-ahead log."""
        self._supervisor_files: set[Path] = set()
        """The supervisor's files at the last check. The supervisor replaces them now and then."""
        self.warnings: list[str] = []
        self.database_removed: Callable[[str], None] = lambda why: None

    def watch(self, database: bool = True) -> None:
        """Starts to watch, in the running event loop. `database`: whether the database is in this directory."""
        for directory in _CONSEQUENCE:
            path = self._paths.data / directory
            with contextlib.suppress(FileNotFoundError):
                self._directories[path] = os.stat(path)
        file = self._paths.database
        for path in (file, file.with_name(file.name + "-wal")) if database else ():
            with contextlib.suppress(FileNotFoundError):
                self._database_files[path] = os.stat(path)
        self._supervisor_files = self._existing_supervisor_files()
        self._fd = _libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        loop = asyncio.get_running_loop()
        if self._notify(self._paths.data):
            self._notify(self._paths.supervisor)
            loop.add_reader(self._fd, self._read)
        else:
            # A user may have few inotify instances (fs.inotify.max_user_instances), and others may have taken them.
            self._timer = loop.call_later(_CHECK_SECONDS, self._check_again)

    def close(self) -> None:
        for timer in (self._timer, self._second_check):
            if timer:
                timer.cancel()
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _notify(self, directory: Path) -> bool:
        return _libc.inotify_add_watch(self._fd, os.fsencode(directory), _REMOVED) >= 0

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 1 << 16)
        self._check()

    def _check_again(self) -> None:
        self._check()
        self._timer = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check_again)

    def _check(self) -> None:
        try:
            self._repair()
            self._failure = ""
        except OSError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                self._warn(f"something was removed from {self._paths.data} and cannot be recreated: {error}")

    def _repair(self) -> None:
        if not self._paths.data.exists():
            if not self._data_removed:
                self._data_removed = True
                self._warn(f"{self._paths.data} was removed while the service ran: stop the service")
            return
        for path, before in self._directories.items():
            if not _is_same(path, before):
                _recreate(path, before)
                self._directories[path] = os.stat(path)
                self._notify(self._paths.supervisor)
                self._warn(
                    f"{path} was removed while the service ran, and was recreated: {_CONSEQUENCE[path.name]}"
                )
        if self._lock.removed:
            with contextlib.suppress(BlockingIOError):  # another start is just being refused
                self._lock.write()
            self._warn(
                f"{self._paths.lock} was removed while the service ran, and is recreated: "
                "it keeps a second service from starting"
            )

        self._check_database()
        self._check_supervisor()

    def _check_database(self) -> None:
        gone = [path for path, before in self._database_files.items() if not _is_same(path, before)]
        if not gone:
            return
        self._database_files.clear()
        warning = (
            f"{gone[0]} was removed while the service ran: no new jobs are accepted. Running jobs continue, but they "
            "and all records are lost when the service ends; put a backup in place before you start it again"
        )
        self._warn(warning)
        self.database_removed(warning)

    def _check_supervisor(self) -> None:
        """Checks again before it warns, because a starting supervisor recreates its socket within a moment."""
        existing = self._existing_supervisor_files()
        if self._supervisor_files - existing and not self._second_check:
            loop = asyncio.get_running_loop()
            self._second_check = loop.call_later(_CHECK_SECONDS, self._check_supervisor_again)
        self._supervisor_files |= existing

    def _check_supervisor_again(self) -> None:
        self._second_check = None
        existing = self._existing_supervisor_files()
        for path in self._supervisor_files - existing:
            self._warn(f"{path} was removed while the service ran: {_SUPERVISOR_CONSEQUENCE[path.name]}")
        self._supervisor_files = existing

    def _existing_supervisor_files(self) -> set[Path]:
        files = (self._paths.supervisor / name for name in _SUPERVISOR_CONSEQUENCE)
        return {path for path in files if path.exists()}

    def _warn(self, warning: str) -> None:
        _log.error("%s", warning)
        del self.warnings[: 1 - _MOST_WARNINGS]
        self.warnings.append(warning)
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {warning}\n".encode(errors="replace")
        with contextlib.suppress(OSError):
            fd = os.open(self._paths.removed, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(fd).st_size + len(line) <= _MOST_BYTES:
                    os.write(fd, line)
            finally:
                os.close(fd)


_RESTART = "restart the service to fill it again"
_CONSEQUENCE = {
    "attempts": "the logs and workspaces in it are gone",
    "buckets": "the objects in it are gone",
    "keeper": _RESTART,
    "runtimes": _RESTART,
}

_SUPERVISOR_CONSEQUENCE = {
    "journal": "if the supervisor is killed before all jobs that run now have ended, they are lost",
    "socket": "let all jobs end before you stop the service, or the next one starts no jobs until they have ended",
}


def _lock_directory(fd: int) -> None:
    """Raises BlockingIOError if another process holds the lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        _log.info("the data directory itself cannot be locked, only the file in it: %s", error)


def _is_same(path: Path, before: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), before)
    except FileNotFoundError:
        return False


def _recreate(path: Path, before: os.stat_result) -> None:
    """Creates it elsewhere and moves it into place, so that it never has another owner. Raises OSError."""
    new = path.with_name(f".{path.name}-{os.getpid()}")
    with contextlib.suppress(FileExistsError):
        new.mkdir(0o700)
    _set_owner_and_mode(new, before)
    try:
        new.rename(path)
    except OSError:
        # Another process has recreated it and put something into it.
        new.rmdir()
        _set_owner_and_mode(path, before)


def _set_owner_and_mode(path: Path, before: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.chown(path, before.st_uid, before.st_gid)
    path.chmod(stat.S_IMODE(before.st_mode))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
