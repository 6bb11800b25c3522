"""Makes the supervisor's directories, and corrects their owners if an earlier version or another `[engines.local] user`
made them.

It works on descriptors and follows no link, because jobs of earlier versions could put anything there.
"""

import contextlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from turnout.engines.local.users.account import Account, Accounts
from turnout.paths import Paths
from turnout.runner.supervisor import procfs
from turnout.runner.supervisor.replicas.mounts import STAGE_MODE
from turnout.runner.supervisor.replicas.spares import ATTEMPTS_MODE, GONE, NEW, PIPES, SPACE

_log = logging.getLogger(__name__)

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ANYTHING = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSABLE = 0o711
_LOGS = (*PIPES, "marks")


def prepare(paths: Paths, supervisor: Account) -> None:
    """Raises OSError."""
    paths.data.mkdir(mode=_PASSABLE, parents=True, exist_ok=True)
    for directory in (paths.runtimes, paths.environments):
        directory.mkdir(mode=0o755, exist_ok=True)
    for directory in (paths.attempts, paths.supervisor):
        directory.mkdir(mode=0o700, exist_ok=True)
    if not supervisor.other:
        return
    # Jobs can pass through it, and cannot list it.
    paths.data.chmod(stat.S_IMODE(paths.data.stat().st_mode) | 0o011)
    with _opened(paths.supervisor) as here:
        _correct_supervisor(here, supervisor)
        _change_owner(here, supervisor, supervisor.gid, _PASSABLE)
    with _opened(paths.attempts) as here:
        if not _has(here, supervisor, ATTEMPTS_MODE):
            _log.info("correcting the owners of the files in %s", paths.attempts)
            for name in os.listdir(here):
                with contextlib.suppress(OSError):
                    _correct_attempt(here, name, supervisor)
        # This comes last, so that a service that is killed before it starts over.
        _change_owner(here, supervisor, supervisor.gid, ATTEMPTS_MODE)


def bucket_owners(
    users: Accounts,
) -> tuple[Callable[[str], tuple[int, int]], int, int, Callable[[], bool]]:
    """The arguments of the storage's `Owners`: a project's uid and gid, the group of all jobs, the uid that owned all
    buckets in earlier versions, and whether jobs of earlier versions still run.
    """

    def owner(project: str) -> tuple[int, int]:
        account = users.of(project)
        return account.uid, account.gid

    return owner, users.uids.start, users.supervisor.uid, partial(earlier_jobs_run, users.supervisor)


def earlier_jobs_run(supervisor: Account) -> bool:
    """Whether there are processes of jobs that run as the supervisor's user, as in earlier versions."""
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}").st_uid == supervisor.uid and procfs.marker(int(entry)):
                    return True
    return False


def _correct_supervisor(here: int, supervisor: Account) -> None:
    """Corrects the owners of its journal and of the mount points. Files of root keep their owner."""
    with contextlib.suppress(FileExistsError):
        os.mkdir("stage", STAGE_MODE, dir_fd=here)
    for name in os.listdir(here):
        with contextlib.suppress(OSError), _opened(name, here, _ANYTHING) as found:
            status = os.fstat(found)
            if name == "stage":
                _change_owner(found, supervisor, supervisor.gid, STAGE_MODE)
            elif (
                stat.S_ISREG(status.st_mode)
                and status.st_nlink == 1
                and status.st_uid not in (0, supervisor.uid)
            ):
                _change_owner(found, supervisor, supervisor.gid)


def _correct_attempt(above: int, name: str, supervisor: Account) -> None:
    """Gives a replica's directory and its logs to the supervisor. The group stays: it gives the job access."""
    with _opened(name, above) as here:
        group = os.fstat(here).st_gid
        if name in (GONE, NEW):
            _change_owner(here, supervisor, supervisor.gid)
            return
        _change_owner(here, supervisor, group, 0o750)
        for inner, mode in ((SPACE, 0o770), *((log, 0o660) for log in _LOGS)):
            with contextlib.suppress(FileNotFoundError), _opened(inner, here, _ANYTHING) as found:
                status = os.fstat(found)
                if stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1):
                    _change_owner(found, supervisor, group, mode)


def _has(here: int, owner: Account, mode: int) -> bool:
    status = os.fstat(here)
    return status.st_uid == owner.uid and stat.S_IMODE(status.st_mode) == mode


def _change_owner(found: int, owner: Account, group: int, mode: int | None = None) -> None:
    # What is open cannot be replaced by a link any more.
    path = f"/proc/self/fd/{found}"
    os.chown(path, owner.uid, group)
    if mode is not None:
        os.chmod(path, mode)


@contextlib.contextmanager
def _opened(path: str | Path, above: int | None = None, flags: int = _DIRECTORY) -> Iterator[int]:
    fd = os.open(path, flags, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)
