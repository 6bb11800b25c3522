"""The directories of a job's copies and exported logs: where they are, and which user owns them."""

import contextlib
import os
import stat
from pathlib import Path

from turnout.engines.local.data.staging_plan import attempt_in
from turnout.engines.local.users.account import Account, Accounts
from turnout.job import Attempt
from turnout.paths import Paths
from turnout.runner.supervisor.disk.remove import remove

DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_COPIES_MODE = 0o1770
"""The job's user can add files, and cannot replace those of the service."""


class CopyDirectories:
    def __init__(self, paths: Paths, accounts: Accounts) -> None:
        self._paths = paths
        self._accounts = accounts

    def account(self, attempt: Attempt, project: str) -> Account:
        """The user of the job's processes. In earlier versions it was the supervisor's, who owns the copies."""
        supervisor = self._accounts.supervisor
        with contextlib.suppress(FileNotFoundError):
            if supervisor.other and self._paths.copies(attempt).lstat().st_uid == supervisor.uid:
                return supervisor
        return self._accounts.of(project)

    def path(self, attempt: Attempt, number: int) -> str:
        """The copy of the mount of this number."""
        return str(self._paths.copies(attempt) / str(number))

    def state_file(self, attempt: Attempt, number: int | str) -> str:
        """Where the stager records what it has transferred for this copy."""
        return str(self._paths.copies(attempt) / f"{number}.state")

    def make(self, attempt: Attempt, project: str) -> Account:
        """Makes the directory of all copies of a job. The stager, which runs as the job's user, can add files to it."""
        _make_parent(self._paths.all_copies, self._accounts.supervisor.other)
        account = self.account(attempt, project)
        if account != self._accounts.supervisor or not account.other:
            _make(self._paths.copies(attempt), account, _COPIES_MODE, uid=os.geteuid())
        return account

    def make_copy(self, attempt: Attempt, number: int, account: Account | None) -> None:
        """Makes the directory of one copy for this user; None: for the service, until the copy is complete."""
        _make(self._paths.copies(attempt) / str(number), account)

    def make_exported(self, attempt: Attempt, account: Account) -> int:
        """Makes the directory that logs are exported to, and opens it. The stager only reads it."""
        _make_parent(self._paths.all_exported, self._accounts.supervisor.other)
        _make(self._paths.exported(attempt), account, 0o750, uid=os.geteuid())
        return os.open(self._paths.exported(attempt), DIRECTORY)

    def attempts(self) -> set[str]:
        """The attempts that have files here, or a plan."""
        found: set[str] = set()
        for directory in (self._paths.staging, self._paths.all_copies, self._paths.all_exported):
            with contextlib.suppress(FileNotFoundError):
                found.update(attempt_in(name) for name in os.listdir(directory))
        return found


def revoke_access_of_others(paths: Paths) -> None:
    """Earlier versions gave every local user rights on these directories."""
    for parent in (paths.all_copies, paths.all_exported):
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(parent):
                with contextlib.suppress(OSError):
                    fd = os.open(parent / name, DIRECTORY)
                    try:
                        mode = stat.S_IMODE(os.fstat(fd).st_mode)
                        os.chmod(f"/proc/self/fd/{fd}", mode & ~stat.S_IRWXO)
                    finally:
                        os.close(fd)


def remove_trees(paths: list[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            remove(str(path))


def _make_parent(path: Path, other: bool) -> None:
    """If jobs run as `other` users, they reach their own directory by its name, and cannot list those of others."""
    mode = 0o711 if other else 0o700
    path.mkdir(mode=mode, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)


def _make(path: Path, account: Account | None, mode: int = 0o700, uid: int | None = None) -> None:
    """For this account; None: for the service itself. With `uid`, only the group is the account's. Follows no link."""
    path.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(path, DIRECTORY)
    try:
        here = f"/proc/self/fd/{fd}"
        if account is None or account.other:
            owner = (os.geteuid(), os.getegid()) if account is None else (account.uid, account.gid)
            os.chown(here, owner[0] if uid is None else uid, owner[1])
            os.chmod(here, mode)
    finally:
        os.close(fd)
