"""Whom replicas run as, and whether that user can get to a file."""

import grp
import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path
from typing import NamedTuple

from turnout.errors import Misconfigured

READ, EXECUTE = 4, 1


class Account(NamedTuple):
    """`other` is True when it is not the service's own user, so that the keeper has to become it."""

    name: str
    uid: int
    gid: int
    other: bool = False

    def blocked(self, path: Path, mode: int = EXECUTE) -> Path | None:
        """The first part of the path that keeps this user from it; None if nothing does.

        By permission bits and not by trying: the service would have to become the user for that.
        """
        real = Path(os.path.realpath(path))
        for part in (*reversed(real.parents), real):
            try:
                found = part.stat()
            except OSError:
                return part
            if not self._may(found, mode if part == real else EXECUTE):
                return part
        return None

    def _may(self, found: os.stat_result, mode: int) -> bool:
        if self.uid == 0:
            return mode != EXECUTE or bool(found.st_mode & 0o111)
        if found.st_uid == self.uid:
            return found.st_mode >> 6 & mode == mode
        if found.st_gid in {self.gid, *self._groups()}:
            return found.st_mode >> 3 & mode == mode
        return found.st_mode & mode == mode

    def _groups(self) -> list[int]:
        # The keeper drops all further groups when it becomes another user.
        return [] if self.other else os.getgroups()


def own() -> Account:
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return Account(name, uid, os.getegid())


def job_user(name: str) -> Account:
    """For a service that runs as root: another user, made if it is not there. For any other: itself."""
    if os.geteuid() != 0:
        return own()
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        entry = _make(name)
    if entry.pw_uid == 0:
        raise Misconfigured(
            f"[engines.local] user = {name!r} is root; jobs never run as root: name another user"
        )
    return Account(name, entry.pw_uid, entry.pw_gid, other=True)


def group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def check_way(account: Account, directory: Path) -> None:
    """Raises Misconfigured if the user cannot get into the directory."""
    wall = account.blocked(directory)
    if wall is not None:
        mode = stat.filemode(wall.stat().st_mode)
        raise Misconfigured(
            f"jobs run as {account.name}, who cannot get through {wall} ({mode}) to {directory}: "
            f"choose another directory with --data, or run chmod o+x {wall}"
        )


def _make(name: str) -> pwd.struct_passwd:
    add = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    hint = f"make it, or name another with [engines.local] user = …: replicas of a root service run as {name}"
    if add is None:
        raise Misconfigured(f"there is no user {name} and no useradd to make it; {hint}")
    options = ["--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"]
    done = subprocess.run([add, *options, name], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    try:
        # Another service may have made it at the same moment.
        return pwd.getpwnam(name)
    except KeyError:
        raise Misconfigured(f"the user {name} could not be made: {done.stderr.strip()}; {hint}") from None
