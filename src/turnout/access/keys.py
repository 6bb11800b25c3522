"""Keys: an id, which is sent, and a secret, which signs and is never sent."""

import asyncio
import contextlib
import logging
import os
import re
import secrets
import stat
import string
import time
from collections.abc import Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from turnout.errors import Denied, Invalid, Misconfigured
from turnout.job import Asset
from turnout.store import Store, StoredKey

_log = logging.getLogger(__name__)

DEFAULT_PROJECT = "default"
LONGEST_LABEL = 200
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PROJECT_RULE = "it has 1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit"
_ACCOUNT = "service account"
"""The kind of the asset that holds a public key."""
_ALL = (1 << 31) - 1
_LETTERS = string.ascii_letters + string.digits


class Key(NamedTuple):
    id: str
    secret: str
    project: str
    root: bool = False
    """The root key may act in every project."""
    label: str = ""
    """A description for people."""
    created: int = 0
    public: bytes = b""
    """The public key of its service account, if it has one."""

    def __repr__(self) -> str:
        return f"Key({self.id!r}, project={self.project!r})"


class FindsKeys(Protocol):
    """What checks a signature: `Keys`, or `JobKeys`, which knows the keys of running jobs too."""

    @property
    def root(self) -> Key: ...
    def find(self, key_id: str) -> Key | None: ...
    def accepts_session(self, key_id: str, session: str) -> bool: ...
    def watch(self, key_id: str) -> AbstractContextManager[asyncio.Event]: ...


class Keys:
    """The root key and, after `open`, the keys of projects, which are in the store and cached in memory."""

    def __init__(self, root: Key) -> None:
        self._root = root
        self._keys = {root.id: root}
        self._store: Store | None = None
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._revoked: set[str] = set()
        self.local_user = ""
        """The user that every caller is, if the service has no authentication."""

    @property
    def root(self) -> Key:
        return self._root

    async def open(self, store: Store) -> None:
        """Load the keys from the store; new keys are stored there."""
        self._store = store
        stored_keys = await store.keys.all()
        public: dict[str, bytes] = {}
        for project in {stored.project for stored in stored_keys}:
            accounts = await store.assets.find(project, _ACCOUNT, None, "", limit=_ALL)
            public |= {account.id: account.document for account in accounts}
        keys = [
            Key(
                stored.id,
                stored.secret,
                stored.project,
                False,
                *stored[3:],
                public=public.get(stored.id, b""),
            )
            for stored in stored_keys
        ]
        # Last, so that a root key from the settings overrides a stored key with the same id.
        self._keys = {key.id: key for key in (*keys, self.root)}

    def find(self, key_id: str) -> Key | None:
        return self._keys.get(key_id)

    def accepts_session(self, key_id: str, session: str) -> bool:
        """Always: these keys have no session tokens, and those that clients send are ignored."""
        return True

    def all(self) -> list[Key]:
        """Root first, then the oldest."""
        return [self.root, *(key for key in self._keys.values() if not key.root)]

    def name_of(self, key_id: str) -> str:
        """What records call the owner of a key: `root`, the local user, or the id of a project's key."""
        return self.local_user or ("root" if key_id == self.root.id else key_id)

    async def create(self, project: str, label: str = "", public: bytes = b"") -> Key:
        """On disk when it returns. `public` is the public key of a service account. Raises Invalid."""
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
        """Its signatures and tokens are refused from now on. Raises NotFound or Denied."""
        if key_id == self.root.id:
            raise Denied(
                "the root key cannot be revoked: remove its file or set TURNOUT_ROOT_KEY while the service is stopped"
            )
        await self._opened().keys.remove(key_id)
        key = self._keys.pop(key_id, None)
        self._revoked.add(key_id)
        self.end_requests(key_id)
        if key and key.public:
            await self._opened().assets.delete(key.project, _ACCOUNT, key_id)

    def end_requests(self, key_id: str) -> None:
        """Ends the long requests that are under way with this key."""
        for event in self._watchers.get(key_id, ()):
            event.set()

    def watched(self) -> list[str]:
        """The ids of the keys with which long requests are under way."""
        return list(self._watchers)

    @contextlib.contextmanager
    def watch(self, key_id: str) -> Generator[asyncio.Event]:
        """An event that is set when the key is revoked."""
        event = asyncio.Event()
        if key_id in self._revoked:  # since the caller checked it
            event.set()
        watchers = self._watchers.setdefault(key_id, set())
        watchers.add(event)
        try:
            yield event
        finally:
            watchers.discard(event)
            if not watchers and self._watchers.get(key_id) is watchers:
                del self._watchers[key_id]

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
    """The root key from the settings or the file; if there is none, a new one, written to the file with mode 0600."""
    text = configured or _read(path) or _make(path)
    key_id, _, secret = text.strip().partition(":")
    if not key_id or not secret:
        raise Misconfigured(f"{path} must contain <id>:<secret>; remove it to get a new root key")
    return Key(key_id, secret, DEFAULT_PROJECT, root=True)


def _read(path: Path) -> str:
    try:
        with path.open() as file:
            _keep_private(file.fileno(), path)
            return file.read()
    except FileNotFoundError:
        return ""


def _keep_private(fd: int, path: Path) -> None:
    """Sets the mode to 0600: a copy, or a restore from a backup, may have changed it."""
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if not mode & 0o077:
        return
    advice = "if others may have read it, remove it and start again: a new root key is made"
    try:
        os.fchmod(fd, 0o600)
    except OSError as error:
        _log.warning("%s has the mode %04o, and others may read the root key: %s", path, mode, error)
    else:
        _log.warning("%s had the mode %04o and has 0600 now; %s", path, mode, advice)


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
