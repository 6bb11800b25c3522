"""Embedded buckets: plain directories, one namespace for all schemes.

A bucket belongs to the project that made it, which `.owners/<bucket>` records before its directory exists. So a
directory without a record was put there by the operator's hand, and is open to all.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from turnout.errors import Denied, Invalid, Misconfigured, NotFound
from turnout.storage.source import InBucket, check_bucket
from turnout.storage.walk import Blocked, Missing, Owner, keep_directory, walk

OPEN_PROJECT = "default"
"""Where root works, and everyone without keys: what it makes is open to all."""


class Buckets:
    def __init__(self, directory: Path, owner: Owner | None) -> None:
        self._directory = directory
        self._owner: Owner | bool = True if owner is None else owner
        self._records = directory / ".owners"
        self._sealed = directory / ".sealed"
        self._owners: dict[str, str] = {}
        self._prepared = False

    def bind(self, source: str, place: InBucket, project: str) -> tuple[Path, tuple[str, ...]]:
        """The directory of all buckets, and the way down from there."""
        self._check(source, place.bucket, project, self._claim)
        parts = (place.bucket, *place.parts)
        with walk(self._directory, parts, source, make=self._owner) as here:
            keep_directory(here)
            return self._directory, parts

    @property
    def owner(self) -> Owner | bool:
        return self._owner

    def all(self, project: str) -> list[tuple[str, int]]:
        """The buckets that this project may use, by name, each with when it was made (ns)."""
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

    @contextlib.contextmanager
    def enter(self, bucket: str, parts: tuple[str, ...], project: str, make: bool = False) -> Iterator[int]:
        """A descriptor (O_PATH) of a directory in a bucket; with `make`, what is missing is made, the bucket too.

        Raises NotFound if the bucket is not there, Missing or Blocked for what lies on the way in it.
        """
        source = "/".join((bucket, *parts))
        check_bucket(source, bucket)
        self._check(source, bucket, project, self._claim if make else self._find)
        with contextlib.ExitStack() as stack:
            way = walk(self._directory, (bucket, *parts), source, self._owner if make else False, mark=True)
            try:
                here = stack.enter_context(way)
            except (Missing, Blocked):
                # Without parts it is the bucket that was missing, even if somebody has made it since.
                if parts and stat.S_ISDIR(_mode(self._directory / bucket)):
                    raise
                raise NotFound(f"there is no bucket {bucket!r}", field="bucket") from None
            yield here

    def uploads(self) -> Path:
        """Where what is being written lies until it is whole: on the buckets' own file system, out of jobs' sight."""
        self._prepare()
        directory = self._directory / ".uploads"
        directory.mkdir(mode=0o700, exist_ok=True)
        return directory

    def has_sealed(self, bucket: str) -> bool:
        """Whether an object that is sealed was ever put into it."""
        return (self._sealed / bucket).exists()

    def mark_sealed(self, bucket: str) -> None:
        if not self.has_sealed(bucket):
            self._prepare()
            self._sealed.mkdir(mode=0o700, exist_ok=True)
            (self._sealed / bucket).touch()

    def remove(self, bucket: str, project: str) -> None:
        """Its name stays this project's: whatever still points there never meets another's data.

        Raises OSError if it is not empty.
        """
        with self.enter(bucket, (), project):
            os.rmdir(self._directory / bucket)

    def _check(self, source: str, bucket: str, project: str, find: Callable[[str, str, str], str]) -> None:
        owner = self._owners.get(bucket) or find(source, bucket, project)
        if owner not in (project, OPEN_PROJECT):
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
                owner = OPEN_PROJECT if by_hand else _write(record, project)
        except OSError as error:
            raise Misconfigured(
                f"{source!r}: the bucket cannot be made in {self._directory}: {error.strerror}"
            ) from None
        self._owners[bucket] = owner
        return owner

    def _prepare(self) -> None:
        """What jobs may go through but not change: else one could put something of its own in the place of ours."""
        if self._prepared:
            return
        mode = 0o700 if isinstance(self._owner, bool) else 0o711
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
    """Whole or not at all, and never over another's."""
    with tempfile.NamedTemporaryFile("w", dir=record.parent, prefix=".", suffix=".new") as new:
        new.write(project)
        new.flush()
        os.fsync(new.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(new.name, record)
    return record.read_text()
