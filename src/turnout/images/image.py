"""An image in the cache, ready to run."""

from pathlib import Path

import msgspec


class ImageConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the image says about the process, in the words of its `config`."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    """`NAME=value`"""
    user: str = ""
    """`user`, `user:group`, `uid` or `uid:gid`; empty: root."""
    working_dir: str = ""


class Image(msgspec.Struct, frozen=True):
    """Hold it (`ImageCache.hold`) as long as its layers are in use."""

    digest: str
    """Of its manifest, `sha256:…`."""
    layers: tuple[Path, ...]
    """The top layer first, as overlayfs' `lowerdir` wants them. Whiteouts are devices 0/0, and opaque directories have
    the attribute `user.overlay.opaque`: mount them with `userxattr`, also as root.

    They belong to the owner of the directory of layers, which nobody else can enter.
    """
    config: ImageConfig
    name: str = ""
    """The full name by which it was found."""
    bytes: int = 0
    """The space that its layers need. Other images may share them."""
    files: int = 0


class Progress(msgspec.Struct, frozen=True):
    """How far a pull is."""

    stage: str
    """`waiting`, `resolving`, `downloading`, `unpacking`, `done`."""
    bytes: int = 0
    total: int = 0
    """Bytes of compressed layers that are not in the cache."""
    layer: int = 0
    """The number of layers that are complete."""
    layers: int = 0
    message: str = ""
    """For people."""
