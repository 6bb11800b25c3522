"""Embedded buckets: plain directories, one namespace for all schemes.

A bucket belongs to the project that made it, which `.owners/<bucket>` records before its directory exists. So a
directory without a record was put there by the operator's hand, and is open to all.
"""

import contextlib
import os
import tempfile
from pathlib import Path

from turnout.errors import Denied, Misconfigured
from turnout.storage.source import InBucket
from turnout.storage.walk import Owner, walk

OPEN_PROJECT = "default"
"""Where root works, and everyone without keys: what it makes is open to all."""


class Buckets:
    def __init__(self, directory: Path, owner: Owner | None) -> None:
        self._directory = directory
        self._owner: Owner | bool = True if owner is None else owner
        self._records = directory / ".owners"
        self._owners: dict[str, str] = {}

    def bind(self, source: str, place: InBucket, project: str) -> tuple[Path, tuple[str, ...]]:
        """The directory of all buckets, and the way down from there."""
        owner = self._owners.get(place.bucket) or self._claim(source, place.bucket, project)
        if owner not in (project, OPEN_PROJECT):
            raise Denied(
                f"{source!r}: the bucket {place.bucket} belongs to another project; choose another name"
            )
        parts = (place.bucket, *place.parts)
        with walk(self._directory, parts, source, make=self._owner):
            return self._directory, parts

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
        if not self._directory.is_dir():
            self._directory.mkdir(mode=0o700, exist_ok=True)
            if not isinstance(self._owner, bool):
                os.chown(self._directory, *self._owner)
        self._records.mkdir(mode=0o700, exist_ok=True)


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
