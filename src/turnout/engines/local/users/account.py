"""The users that the supervisor and the jobs run as, and whether such a user can reach a file.

If the service runs as root, the supervisor has a user of its own, and so has each project: a uid from a range. A file
in the data directory records it, so that no other project ever gets it. Otherwise everything runs as the service's
user.
"""

import contextlib
import os
import pwd
import re
import shutil
import stat
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

import msgspec

from turnout.config import LocalEngineSettings
from turnout.errors import Misconfigured

READ, EXECUTE = 4, 1

_DEFAULT_UIDS = (range(2_100_000_000, 2_100_065_536), range(40_000, 60_000))
"""Above the uids of people, subuids, systemd and directory services; the second is for containers with few uids."""
_FIRST, _LAST = 1000, 1 << 31
_FEWEST = 2
_NOBODY = 65534
_BUILDER = "[runtimes]"
"""Has a uid as projects have, and no project can have this name."""


class Account(NamedTuple):
    """`other`: it is not the service's own user, so a process has to switch to it."""

    name: str
    uid: int
    gid: int
    other: bool = False
    groups: tuple[int, ...] = ()
    """Supplementary groups."""

    def blocked(self, path: Path, mode: int = EXECUTE) -> Path | None:
        """The first part of the path that this user cannot pass; None: the user can reach it.

        It checks permission bits: to try the access, the service would have to switch to the user.
        """
        real = Path(os.path.realpath(path))
        for part in (*reversed(real.parents), real):
            try:
                found = part.stat()
            except OSError:
                return part
            if not self._is_allowed(found, mode if part == real else EXECUTE):
                return part
        return None

    def _is_allowed(self, found: os.stat_result, mode: int) -> bool:
        if self.uid == 0:
            return mode != EXECUTE or bool(found.st_mode & 0o111)
        if found.st_uid == self.uid:
            return found.st_mode >> 6 & mode == mode
        if found.st_gid in {self.gid, *self._groups()}:
            return found.st_mode >> 3 & mode == mode
        return found.st_mode & mode == mode

    def _groups(self) -> list[int]:
        return list(self.groups) if self.other else os.getgroups()


def own_account() -> Account:
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return Account(name, uid, os.getegid())


class Accounts:
    """`supervisor`: its account. `uids`: the range for jobs; empty: jobs run as the service's own user."""

    def __init__(self, supervisor: Account, uids: range, file: Path) -> None:
        """`file` records the uid of each project."""
        self.supervisor = supervisor
        self.uids = uids
        self._file = file
        self._lock = threading.Lock()
        self._by_project: dict[str, int] | None = None
        """None: not read yet."""

    @property
    def anyone(self) -> Account:
        """An account with no more rights than the jobs of every project have."""
        if not self.uids:
            return self.supervisor
        return Account("the users of jobs", self.uids.start, self.uids.start, other=True)

    @property
    def builder(self) -> Account:
        """What makes environments: its user owns nothing else. Raises Misconfigured if no uid is left. Blocks."""
        return self.of(_BUILDER)

    @property
    def all(self) -> list[Account]:
        """The accounts that projects have so far."""
        if not self.uids:
            return [self.supervisor]
        return [self._account(uid) for uid in self._known().values()]

    def of(self, project: str) -> Account:
        """The account of a project, always the same. Raises Misconfigured if no uid is left."""
        if not self.uids:
            return self.supervisor
        return self._account(self._known().get(project) or self._choose(project))

    def blocked(self, project: str, path: Path, mode: int) -> Path | None:
        """The first part of the path that jobs of the project cannot pass, see Account. Empty project: jobs of any."""
        return (self.of(project) if project else self.anyone).blocked(path, mode)

    def _account(self, uid: int) -> Account:
        common = self.uids.start
        return Account(f"job-{uid - common}", uid, uid, other=True, groups=(common,))

    def _known(self) -> dict[str, int]:
        if self._by_project is None:
            with self._lock:
                found = _read(self._file)
                self._by_project = {name: uid for name, uid in found.items() if uid in self.uids[1:]}
        return self._by_project

    def _choose(self, project: str) -> int:
        known = self._known()
        with self._lock:
            if project not in known:
                uid = max(known.values(), default=self.uids.start) + 1
                if uid not in self.uids:
                    owner = "what makes environments" if project == _BUILDER else f"the project {project!r}"
                    raise Misconfigured(
                        f"[engines.local] uids has no uid left for {owner}: make the range larger"
                    )
                _write(self._file, known | {project: uid})
                known[project] = uid
        return known[project]


def accounts(settings: LocalEngineSettings, file: Path) -> Accounts:
    """A service that runs as root creates the supervisor's user if it is missing. Raises Misconfigured."""
    supervisor = supervisor_account(settings.user)
    uids = job_uids(settings.uids) if supervisor.other else range(0)
    if supervisor.uid in uids or supervisor.gid in uids:
        raise Misconfigured(
            f"[engines.local] uids = {settings.uids!r} contains the uid or gid of {settings.user}, which no job may "
            "have: choose another range"
        )
    return Accounts(supervisor, uids, file)


def supervisor_account(name: str) -> Account:
    """If the service runs as root: this user, which is created if it is missing. Otherwise the service's own."""
    if os.geteuid() != 0:
        return own_account()
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        entry = _create(name)
    if entry.pw_uid == 0:
        raise Misconfigured(
            f"[engines.local] user = {name!r} is root; the supervisor never runs as root: name another user"
        )
    return Account(name, entry.pw_uid, entry.pw_gid, other=True)


def job_uids(wanted: str) -> range:
    """The range of the setting `uids`. Raises Misconfigured."""
    if wanted == "auto":
        for choice in _DEFAULT_UIDS:
            if _is_mapped(choice) and not _overlaps(choice):
                return choice
        raise Misconfigured(
            "[engines.local] uids: neither "
            + " nor ".join(f"{uids.start}-{uids.stop - 1}" for uids in _DEFAULT_UIDS)
            + " can be used on this machine (/proc/self/uid_map, /etc/subuid): set a range that nobody else uses"
        )
    found = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", wanted)
    uids = range(int(found[1]), int(found[2]) + 1) if found else range(0)
    if len(uids) < _FEWEST or uids.start < _FIRST or uids.stop > _LAST or _NOBODY in uids:
        raise Misconfigured(
            f'[engines.local] uids = {wanted!r} must be "auto" or a range such as "2100000000-2100065535", of at least '
            f"{_FEWEST} uids from {_FIRST} on, without {_NOBODY} (nobody)"
        )
    if not _is_mapped(uids):
        raise Misconfigured(
            f"[engines.local] uids = {wanted!r}: the user namespace that the service is in has no such uids "
            "(/proc/self/uid_map)"
        )
    if file := _overlaps(uids):
        raise Misconfigured(
            f"[engines.local] uids = {wanted!r}: {file} assigns some of these to a user: choose another range"
        )
    return uids


def check_access(account: Account, directory: Path, data: Path | None = None) -> None:
    """Raises Misconfigured if the user cannot enter the directory. `data`: the directory to be made below it."""
    obstacle = account.blocked(directory)
    if obstacle is not None:
        mode = stat.filemode(obstacle.stat().st_mode)
        raise Misconfigured(
            f"jobs run as other users, who cannot enter {obstacle} ({mode}) to reach {data or directory}: "
            f"choose another directory with --data, or run chmod o+x {obstacle}"
        )


def _is_mapped(uids: range) -> bool:
    for name in ("uid_map", "gid_map"):
        maps = [tuple(map(int, line.split())) for line in Path("/proc/self", name).read_text().splitlines()]
        if not any(start <= uids.start and uids.stop <= start + count for start, _, count in maps):
            return False
    return True


def _overlaps(uids: range) -> str:
    """The file that assigns some of these uids to users; empty: none does."""
    for name in ("/etc/subuid", "/etc/subgid"):
        with contextlib.suppress(OSError):
            for line in Path(name).read_text(errors="replace").splitlines():
                _, first, count = [*line.split(":"), "", "", ""][:3]
                if first.isdecimal() and count.isdecimal():
                    assigned = range(int(first), int(first) + int(count))
                    if assigned.start < uids.stop and uids.start < assigned.stop:
                        return name
    return ""


def _read(file: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        raise Misconfigured(
            f"{file}, which records the uid of each project, cannot be read ({error}): restore it from a backup"
        ) from None


def _write(file: Path, by_project: dict[str, int]) -> None:
    """Atomically, and synced to disk: a uid that was used once is never given to another project."""
    fresh = file.with_name(file.name + ".new")
    with open(fresh, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
        opened.write(msgspec.json.format(msgspec.json.encode(by_project)) + b"\n")
        opened.flush()
        os.fsync(opened.fileno())
    fresh.rename(file)
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _create(name: str) -> pwd.struct_passwd:
    add = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    hint = "create it, or set [engines.local] user to another: the supervisor of a root service runs as that user"
    if add is None:
        raise Misconfigured(f"there is no user {name} and no useradd to create it; {hint}")
    options = ["--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"]
    done = subprocess.run([add, *options, name], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    try:
        # Another service may have created it at the same moment.
        return pwd.getpwnam(name)
    except KeyError:
        raise Misconfigured(f"the user {name} could not be created: {done.stderr.strip()}; {hint}") from None
