"""Copies of paths in embedded buckets, for jobs that cannot bind the bucket because of encryption.

Objects are decrypted on the way in, and encrypted on the way out if the job is. All calls block.
"""

import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.engines.local.data.stager_client import Transferred
from turnout.engines.local.users.account import Account
from turnout.errors import NotFound
from turnout.runner.stager import transfer_log
from turnout.runner.stager.file_tree import FoundFile, Tree
from turnout.runner.stager.files import INCOMING, TargetDirectory, parts_of
from turnout.runner.stager.progress import WarningList
from turnout.storage import EmbeddedPath
from turnout.storage.embedded.objects import Info

if TYPE_CHECKING:
    from turnout.vault.cipher import DataKey

_CHUNK = 1 << 20
_SETTLED_NS = 2_000_000_000
"""Nanoseconds. A file that changed more recently may still be being written."""


class BucketCopy:
    """A path in a bucket, and the directory with its copy."""

    def __init__(self, path: EmbeddedPath, url: str, directory: str, state: str) -> None:
        self._path = path
        self._url = url
        self._directory = directory
        self._state = state

    def fetch(self, account: Account, optional: bool) -> None:
        """Copies all objects, then gives the directory to the account. Raises TurnoutError.

        `optional`: it is no error if there are none.
        """
        known = transfer_log.TransferLog(self._state)
        target = TargetDirectory(
            self._directory, hashlib.sha1(self._url.encode(), usedforsecurity=False).hexdigest()[:12]
        )
        try:
            for name, info in self._path.objects():
                if name.endswith("/"):
                    target.make_directory(parts_of(name[:-1], self._url))
                else:
                    self._fetch_one(target, known, name, info)
        except NotFound:
            if not optional:
                raise
        finally:
            target.close(keep=False)
            known.close()
        if account.other:
            _change_owner(self._directory, account)

    def save(self, key: "DataKey | None", *, final: bool) -> Transferred:
        """Copies changed files to the bucket. Files that are being written wait for `final`. Raises TurnoutError."""
        saved, skipped = Transferred(), WarningList()
        known = transfer_log.TransferLog(self._state)
        tree = Tree(self._directory, INCOMING)
        try:
            for seen in tree.files(skipped.add):
                before = known.get(_hashed(seen.path))
                if before and (before.size, before.mtime) == (seen.size, seen.mtime):
                    continue
                if not final and time.time_ns() - seen.mtime < _SETTLED_NS:
                    saved.waiting += 1
                    continue
                try:
                    saved.bytes += self._save_one(tree, seen, key)
                except (FileNotFoundError, PermissionError):
                    continue
                saved.files += 1
                known.add(transfer_log.TransferredFile(_hashed(seen.path), seen.size, seen.mtime, ""))
        finally:
            tree.close()
            known.close()
        saved.warnings = skipped.texts
        return saved

    def _fetch_one(
        self, target: TargetDirectory, known: transfer_log.TransferLog, name: str, info: Info
    ) -> None:
        parts = parts_of(name, self._url)
        temporary = f"small-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()}"
        with self._path.open(name) as (pread, _):
            file = target.create(temporary)
            try:
                at = 0
                while chunk := pread(_CHUNK, at):
                    _write_all(file, chunk)
                    at += len(chunk)
                os.utime(file, ns=(info.modified, info.modified))
            except OSError as error:
                raise target.explain(error, parts, info.size) from None
            finally:
                os.close(file)
        target.place(temporary, parts)
        known.add(transfer_log.TransferredFile(_hashed("/".join(parts)), at, info.modified, ""))

    def _save_one(self, tree: Tree, seen: FoundFile, key: "DataKey | None") -> int:
        file = tree.open(seen.path)
        try:
            writer = self._path.writer(seen.path, key)
            try:
                at = 0
                while chunk := os.pread(file, _CHUNK, at):
                    writer.write(chunk)
                    at += len(chunk)
                writer.commit()
            finally:
                writer.abort()
        finally:
            os.close(file)
        return at


def _hashed(path: str) -> str:
    """The name is written to disk, and may be as secret as the content."""
    return hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _change_owner(directory: str, account: Account) -> None:
    """Gives the tree to the job's user, the top last: until then nobody but the service can enter it."""
    for _, directories, files, here in os.fwalk(Path(directory), follow_symlinks=False):
        for name in (*directories, *files):
            os.chown(name, account.uid, account.gid, dir_fd=here, follow_symlinks=False)
    os.chown(directory, account.uid, account.gid, follow_symlinks=False)
