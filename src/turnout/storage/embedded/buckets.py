"""Embedded buckets: plain directories, one namespace for all schemes.

A bucket belongs to the project that created it; without authentication, to the open project. `.owners/<bucket>`
records that before the directory exists, so a directory without a record was made by the operator and is open to all
projects.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from turnout.errors import Denied, Invalid, Misconfigured, NotFound
from turnout.storage.directories import MissingDirectory, NotDirectory, keep_directory, open_beneath
from turnout.storage.owners import DIRECTORY, OPEN_PROJECT, Owner, Owners, hand_over, share
from turnout.storage.source import InBucket, check_bucket, without_account


class Buckets:
    def __init__(self, directory: Path, owners: Owners | None, open_to_all: bool = False) -> None:
        """`owners`: None where jobs run as the service's own user. `open_to_all`: every caller is the same person."""
        self._open_to_all = open_to_all
        self._directory = directory
        self._owners = owners
        self._records = directory / ".owners"
        self._sealed = directory / ".sealed"
        self._projects: dict[str, str] = {}
        self._prepared = False

    def bind(self, source: str, place: InBucket, project: str, make: bool) -> tuple[Path, tuple[str, ...]]:
        """The directory of all buckets, and the names from there down. `make`: make missing directories."""
        bucket = self.real_name(place.bucket)
        self._check(source, bucket, project, self._claim if make else self._find)
        parts = (bucket, *place.parts)
        maker = self.owner(bucket, project) if make else False
        with open_beneath(self._directory, parts, source, make=maker) as here:
            if make:
                keep_directory(here)
            return self._directory, parts

    def real_name(self, bucket: str) -> str:
        """Tencent's `data-1250000000` is the bucket `data` through every API, unless there is one of the full name."""
        short = without_account(bucket)
        return bucket if short == bucket or os.path.lexists(self._directory / bucket) else short

    def owner(self, bucket: str, project: str) -> Owner | bool:
        """The owner of what this project makes in the bucket, which may not exist yet; True: the service itself."""
        if self._owners is None:
            return True
        bucket = self.real_name(bucket)
        owner = self._projects.get(bucket) or _read(self._records / bucket)
        if owner is None:
            known = self._open_to_all or os.path.lexists(self._directory / bucket)
            owner = OPEN_PROJECT if known else project
        return self._owners.of_bucket(owner)

    def all(self, project: str) -> list[tuple[str, int]]:
        """The buckets that this project may use, sorted by name, each with its creation time (ns)."""
        found: list[tuple[str, int]] = []
        try:
            names = sorted(
                entry.name for entry in os.scandir(self._directory) if entry.is_dir(follow_symlinks=False)
            )
        except FileNotFoundError:
            return []
        for name in names:
            with contextlib.suppress(Denied, Invalid, FileNotFoundError):
                self._check(name, name, project, self._find)
                record = self._records / name
                path = record if record.exists() else self._directory / name
                found.append((name, path.stat().st_mtime_ns))
        return found

    def has(self, bucket: str, project: str) -> bool:
        """Raises Denied if it is another project's."""
        with contextlib.suppress(NotFound), self.enter(bucket, (), project):
            return True
        return False

    def is_shared(self, bucket: str, project: str) -> bool:
        """Whether other projects can change what this one has in it."""
        if self._open_to_all or project == OPEN_PROJECT:
            return False
        bucket = self.real_name(bucket)
        return self._find(bucket, bucket, project) == OPEN_PROJECT

    @contextlib.contextmanager
    def enter(self, bucket: str, parts: tuple[str, ...], project: str, make: bool = False) -> Iterator[int]:
        """Yields a descriptor (O_PATH) of a directory in a bucket. `make`: make missing directories and the bucket.

        Raises NotFound if the bucket does not exist, MissingDirectory or NotDirectory for a part of the path.
        """
        source = "/".join((bucket, *parts))
        check_bucket(source, bucket)
        bucket = self.real_name(bucket)
        self._check(source, bucket, project, self._claim if make else self._find)
        with contextlib.ExitStack() as stack:
            maker = self.owner(bucket, project) if make else False
            opening = open_beneath(self._directory, (bucket, *parts), source, maker, mark=True)
            try:
                here = stack.enter_context(opening)
            except (MissingDirectory, NotDirectory):
                # Without parts, the missing directory was the bucket, even if another request has created it since.
                if parts and stat.S_ISDIR(_mode(self._directory / bucket)):
                    raise
                raise NotFound(f"there is no bucket {bucket!r}", field="bucket") from None
            yield here

    def uploads(self) -> Path:
        """The directory of incomplete uploads: on the buckets' file system, where jobs cannot see it."""
        self._prepare()
        directory = self._directory / ".uploads"
        directory.mkdir(mode=0o700, exist_ok=True)
        return directory

    def has_sealed(self, bucket: str) -> bool:
        """Whether the bucket ever got an encrypted object."""
        return (self._sealed / self.real_name(bucket)).exists()

    def mark_sealed(self, bucket: str) -> None:
        if not self.has_sealed(bucket):
            self._prepare()
            self._sealed.mkdir(mode=0o700, exist_ok=True)
            (self._sealed / self.real_name(bucket)).touch()

    def remove(self, bucket: str, project: str) -> None:
        """The name stays reserved for this project, so that old references never lead to another project's data.

        Raises OSError if it is not empty.
        """
        with self.enter(bucket, (), project):
            os.rmdir(self._directory / self.real_name(bucket))

    def _check(self, source: str, bucket: str, project: str, find: Callable[[str, str, str], str]) -> None:
        owner = self._projects.get(bucket) or find(source, bucket, project)
        if owner not in (project, OPEN_PROJECT) and not self._open_to_all:
            raise Denied(f"{source!r}: the bucket {bucket} belongs to another project; choose another name")

    def _find(self, source: str, bucket: str, project: str) -> str:
        check_bucket(source, bucket)
        return _read(self._records / bucket) or OPEN_PROJECT

    def _claim(self, source: str, bucket: str, project: str) -> str:
        record = self._records / bucket
        try:
            self._prepare()
            owner = _read(record)
            if owner is None:
                by_hand = os.path.lexists(self._directory / bucket)
                creator = OPEN_PROJECT if self._open_to_all else project
                owner = OPEN_PROJECT if by_hand else _write(record, creator)
        except OSError as error:
            raise Misconfigured(
                f"{source!r}: the bucket cannot be made in {self._directory}: {error.strerror}"
            ) from None
        self._projects[bucket] = owner
        return owner

    def close_to_others(self) -> None:
        """Removes the permissions that an earlier version, or the operator, gave to all local users.

        In a bucket that the operator made, the group of all jobs gets the permissions that others had. Where jobs have
        users of their own, a bucket that an earlier version made is given to its project.
        """
        with contextlib.suppress(FileNotFoundError), os.scandir(self._directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    with contextlib.suppress(OSError):
                        self._close(entry.name)

    def _close(self, bucket: str) -> None:
        here = os.open(self._directory / bucket, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if self._owners and (self._records / bucket).exists():
                self._give_to_owner(
                    here, self._owners.of_bucket(self._find(bucket, bucket, "")), self._owners
                )
                return
            mode = stat.S_IMODE(os.fstat(here).st_mode)
            if self._owners and os.fstat(here).st_gid != self._owners.common:
                os.fchown(here, -1, self._owners.common)
                mode |= (mode & stat.S_IRWXO) << 3
            if mode & stat.S_IRWXO:
                os.fchmod(here, mode & ~stat.S_IRWXO)
        finally:
            os.close(here)

    def _give_to_owner(self, here: int, owner: Owner, owners: Owners) -> None:
        """Gives the bucket to its owner. The bucket itself comes last, so that an interrupted change is repeated."""
        status = os.fstat(here)
        wanted = (owner.of_bucket.uid, owner.gid, DIRECTORY)
        if (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == wanted:
            return
        keep = owners.earlier_jobs_run()
        hand_over(here, owner, owners.earlier_uid, keep)
        os.fchown(here, status.st_uid if keep else owner.of_bucket.uid, owner.gid)
        os.fchmod(here, DIRECTORY)
        if owner.shared:
            share(here)

    def _prepare(self) -> None:
        """Jobs may enter the directory but not change it, so that they cannot replace a bucket or a record."""
        if self._prepared:
            return
        mode = 0o711 if self._owners else 0o700
        self._directory.mkdir(mode=mode, exist_ok=True)
        if stat.S_IMODE(self._directory.stat().st_mode) != mode:
            self._directory.chmod(mode)
        if self._directory.stat().st_uid != os.geteuid():
            os.chown(self._directory, os.geteuid(), os.getegid())
        self._records.mkdir(mode=0o700, exist_ok=True)
        self._prepared = True


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _read(record: Path) -> str | None:
    try:
        return record.read_text()
    except FileNotFoundError:
        return None


def _write(record: Path, project: str) -> str:
    """Writes the record atomically. Never replaces an existing one."""
    with tempfile.NamedTemporaryFile("w", dir=record.parent, prefix=".", suffix=".new") as new:
        new.write(project)
        new.flush()
        os.fsync(new.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(new.name, record)
    return record.read_text()
