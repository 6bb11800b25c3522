"""Key pairs: an id that is sent, and a secret that signs and is never sent."""

import os
import re
import secrets
import string
import time
from pathlib import Path
from typing import NamedTuple

from turnout.errors import Denied, Invalid, Misconfigured
from turnout.job import Asset
from turnout.store import Store, StoredKey

DEFAULT_PROJECT = "default"
LONGEST_LABEL = 200
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PROJECT_RULE = "it has 1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit"
_ACCOUNT = "service account"
"""The kind of asset that a public key is kept as."""
_ALL = (1 << 31) - 1
_LETTERS = string.ascii_letters + string.digits


class Key(NamedTuple):
    id: str
    secret: str
    project: str
    root: bool = False
    """Root acts in every project."""
    label: str = ""
    """What its maker wrote on it, for people."""
    created: int = 0
    public: bytes = b""
    """The public half of its service account's key, if it has one."""

    def __repr__(self) -> str:
        return f"Key({self.id!r}, project={self.project!r})"


class Keys:
    """The root key, and after `open` those of projects: in the store, and in memory for the many who ask."""

    def __init__(self, root: Key) -> None:
        self.root = root
        self._keys = {root.id: root}
        self._store: Store | None = None

    async def open(self, store: Store) -> None:
        """Take up what the store holds, and keep there what is made from now on."""
        self._store = store
        kept = await store.keys.all()
        public: dict[str, bytes] = {}
        for project in {one.project for one in kept}:
            accounts = await store.assets.find(project, _ACCOUNT, None, "", limit=_ALL)
            public |= {account.id: account.document for account in accounts}
        stored = [
            Key(one.id, one.secret, one.project, False, *one[3:], public=public.get(one.id, b""))
            for one in kept
        ]
        # Last, so that a root key from the settings is root whatever the store says.
        self._keys = {key.id: key for key in (*stored, self.root)}

    def find(self, key_id: str) -> Key | None:
        return self._keys.get(key_id)

    def all(self) -> list[Key]:
        """Root first, then the oldest."""
        return [self.root, *(key for key in self._keys.values() if not key.root)]

    async def create(self, project: str, label: str = "", public: bytes = b"") -> Key:
        """On disk when it returns. `public` is the half that is kept of a service account's key. Raises Invalid."""
        if not _PROJECT.fullmatch(project):
            raise Invalid(f"{project!r} cannot be a project: {_PROJECT_RULE}", field="project")
        if len(label) > LONGEST_LABEL or not label.isprintable():
            raise Invalid(f"label must be at most {LONGEST_LABEL} printable characters", field="label")
        stored = StoredKey(f"AKID{_letters(20)}", _letters(32), project, label, time.time_ns())
        if public:
            account = Asset(
                project, _ACCOUNT, stored.id, "", stored.id, stored.created, stored.created, public
            )
            await self._opened().assets.create(account)
        await self._opened().keys.add(stored)
        key = Key(stored.id, stored.secret, project, False, label, stored.created, public)
        self._keys[key.id] = key
        return key

    async def revoke(self, key_id: str) -> None:
        """What it signs is refused from now on, and tokens made from it are too. Raises NotFound or Denied."""
        if key_id == self.root.id:
            raise Denied(
                "the root key cannot be revoked: stop the service, remove its file or set TURNOUT_ROOT_KEY, start"
            )
        await self._opened().keys.remove(key_id)
        key = self._keys.pop(key_id, None)
        if key and key.public:
            await self._opened().assets.delete(key.project, _ACCOUNT, key_id)

    def _opened(self) -> Store:
        assert self._store, "open() comes first"
        return self._store


def may_use(key: Key, project: str) -> None:
    """Raises Denied."""
    if key.root and not _PROJECT.fullmatch(project):
        raise Denied(f"{project!r} cannot be a project: {_PROJECT_RULE}")
    if not key.root and key.project != project:
        raise Denied(f"the key {key.id} belongs to project {key.project} and may not act in {project}")


def open_root_key(path: Path, configured: str = "") -> Key:
    """The root key from the settings, from the file, or made now and kept there with mode 0600."""
    text = configured or _read(path) or _make(path)
    key_id, _, secret = text.strip().partition(":")
    if not key_id or not secret:
        raise Misconfigured(f"{path} must hold <id>:<secret>; remove it to have a new root key made")
    return Key(key_id, secret, DEFAULT_PROJECT, root=True)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _make(path: Path) -> str:
    text = f"AKID{_letters(20)}:{_letters(32)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    return text


def _letters(count: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(count))
