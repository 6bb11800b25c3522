"""What is in the cache: one file, written whole, and in memory while the service runs."""

import hashlib
import logging
import os
from pathlib import Path

import msgspec

from turnout.images.image import ImageConfig

_log = logging.getLogger(__name__)


class LayerRecord(msgspec.Struct, omit_defaults=True):
    bytes: int
    files: int
    opaque: bool = False
    """Whether it hides all layers below it."""
    skipped: list[str] = []
    scopes: list[str] = []
    """Whose credentials brought it. An image of another scope may use it only after it brought the layer itself."""
    blobs: list[str] = []
    """The digests of the blobs that have this content."""


class ImageRecord(msgspec.Struct, omit_defaults=True):
    diff_ids: list[str]
    """The digests of the layers' contents, the lowest first."""
    config: ImageConfig
    pulled_at: int = 0


class NameRecord(msgspec.Struct, omit_defaults=True):
    name: str
    """The full name, or skopeo's name of a local image."""
    digest: str
    scope: str = ""
    """The entry of `[registries]` whose credentials brought it; empty: it is for every project."""
    source: str = ""
    """Where `turnout image import` brought it from. The cache cannot bring it again, so it is never collected."""
    checked_at: float = 0
    """When the registry said that the name means this digest."""
    used_at: float = 0


class Index(msgspec.Struct, omit_defaults=True):
    layers: dict[str, LayerRecord] = {}
    """By diff_id."""
    images: dict[str, ImageRecord] = {}
    """By digest."""
    names: dict[str, NameRecord] = {}
    """By `key`."""


def key(name: str, scope: str) -> str:
    return f"{scope} {name}"


def file_name(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]


def read(file: Path) -> Index:
    """An index that cannot be read is set aside: what it names can be pulled again."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Index)
    except FileNotFoundError:
        return Index()
    except msgspec.DecodeError as error:
        _log.error("%s cannot be read and is set aside: %s", file, error)
        file.rename(file.with_name(file.name + ".bad"))
        return Index()


def write(file: Path, encoded: bytes) -> None:
    """Atomically, and synced to disk. Raises OSError."""
    new = file.with_name(file.name + ".new")
    try:
        with open(new, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
            opened.write(encoded)
            opened.flush()
            os.fsync(opened.fileno())
        new.rename(file)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
