"""Key pairs: an id that is sent, and a secret that signs and is never sent."""

import os
import secrets
import string
from pathlib import Path
from typing import NamedTuple

from turnout.errors import Misconfigured

DEFAULT_PROJECT = "default"
_LETTERS = string.ascii_letters + string.digits


class Key(NamedTuple):
    id: str
    secret: str
    project: str
    root: bool = False
    """Root acts in every project."""

    def __repr__(self) -> str:
        return f"Key({self.id!r}, project={self.project!r})"


class Keys:
    def __init__(self, root: Key) -> None:
        self.root = root
        self._keys = {root.id: root}

    def find(self, key_id: str) -> Key | None:
        return self._keys.get(key_id)


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
