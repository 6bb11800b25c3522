"""Copies of what lies in embedded buckets, for jobs that cannot have the bucket itself: what they find there is opened
on the way in, and what they write is sealed on the way out, if they have a key. All calls block.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from turnout.engines.local.account import Account
from turnout.engines.local.mover import Moved
from turnout.errors import NotFound
from turnout.runner.stage import memory
from turnout.runner.stage.files import INCOMING, Target, parts_of
from turnout.runner.stage.walk import Seen, Tree

if TYPE_CHECKING:
    from turnout.vault.cipher import DataKey

_PIECE = 1 << 20
_SETTLED = 2_000_000_000
"""What was written so shortly ago may be being written."""


class Writer(Protocol):
    def write(self, data: bytes) -> None: ...
    def commit(self) -> object: ...
    def abort(self) -> None: ...


class About(Protocol):
    @property
    def size(self) -> int: ...
    @property
    def modified(self) -> int: ...


class Near(Protocol):
    """See `turnout.storage.near.Near`."""

    def objects(self) -> Iterator[tuple[str, About]]: ...
    def holds_sealed(self) -> bool: ...
    def open(self, name: str) -> AbstractContextManager[tuple[Callable[[int, int], bytes], About]]: ...
    def writer(self, name: str, key: "DataKey | None") -> Writer: ...


class NearCopy:
    """One place in a bucket, and the directory that the job has instead of it."""

    def __init__(self, near: Near, url: str, directory: str, state: str) -> None:
        self._near = near
        self._url = url
        self._directory = directory
        self._state = state

    def fetch(self, account: Account) -> None:
        """All that is there, if anything. Raises TurnoutError."""
        known = memory.Memory(self._state)
        target = Target(
            self._directory, hashlib.sha1(self._url.encode(), usedforsecurity=False).hexdigest()[:12]
        )
        try:
            for name, about in self._near.objects():
                if name.endswith("/"):
                    target.make_directory(parts_of(name[:-1], self._url))
                else:
                    self._fetch_one(target, known, name, about)
        except NotFound:
            pass  # bound, it would be an empty directory
        finally:
            target.close(keep=False)
            known.close()
        if account.other:
            _give(self._directory, account)

    def bring_back(self, key: "DataKey | None", *, final: bool) -> Moved:
        """What has changed. Raises TurnoutError. Not `final`: what is being written is left for the next time."""
        moved = Moved()
        known = memory.Memory(self._state)
        tree = Tree(self._directory, INCOMING)
        try:
            for seen in tree.files(moved.warnings.append):
                before = known.get(_hidden(seen.path))
                if before and (before.size, before.mtime) == (seen.size, seen.mtime):
                    continue
                if not final and time.time_ns() - seen.mtime < _SETTLED:
                    moved.waiting += 1
                    continue
                try:
                    moved.bytes += self._bring_one_back(tree, seen, key)
                except (FileNotFoundError, PermissionError):
                    continue
                moved.files += 1
                known.add(memory.Moved(_hidden(seen.path), seen.size, seen.mtime, ""))
        finally:
            tree.close()
            known.close()
        return moved

    def _fetch_one(self, target: Target, known: memory.Memory, name: str, about: About) -> None:
        parts = parts_of(name, self._url)
        new = f"small-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()}"
        with self._near.open(name) as (pread, _):
            file = target.create(new)
            try:
                at = 0
                while piece := pread(_PIECE, at):
                    _write_all(file, piece)
                    at += len(piece)
                os.utime(file, ns=(about.modified, about.modified))
            except OSError as error:
                raise target.explain(error, parts, about.size) from None
            finally:
                os.close(file)
        target.place(new, parts)
        known.add(memory.Moved(_hidden("/".join(parts)), at, about.modified, ""))

    def _bring_one_back(self, tree: Tree, seen: Seen, key: "DataKey | None") -> int:
        file = tree.open(seen.path)
        try:
            writer = self._near.writer(seen.path, key)
            try:
                at = 0
                while piece := os.pread(file, _PIECE, at):
                    writer.write(piece)
                    at += len(piece)
                writer.commit()
            finally:
                writer.abort()
        finally:
            os.close(file)
        return at


def _hidden(path: str) -> str:
    """Names of files may tell as much as what is in them, and this is written down."""
    return hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _give(directory: str, account: Account) -> None:
    """To the user that the job runs as. Nobody else has been in there yet."""
    os.chown(directory, account.uid, account.gid)
    for _, directories, files, here in os.fwalk(Path(directory), follow_symlinks=False):
        for name in (*directories, *files):
            os.chown(name, account.uid, account.gid, dir_fd=here, follow_symlinks=False)
