"""The documents of an image: index, manifest and config, of OCI and of Docker (schema 2). Pure."""

import hashlib
from typing import Any

import msgspec

from turnout.errors import Invalid
from turnout.images.image import ImageConfig

_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_LARGEST = 4 << 20
_MOST_LAYERS = 500


class BadImage(Invalid):
    """What a registry says about the image is wrong, or is nothing that Turnout can run."""


class Platform(msgspec.Struct):
    architecture: str = ""
    os: str = ""


class Descriptor(msgspec.Struct):
    digest: str
    size: int
    mediaType: str = ""
    platform: Platform | None = None
    urls: list[str] | None = None


class Manifest(msgspec.Struct):
    digest: str
    """Of the document."""
    config: Descriptor
    layers: list[Descriptor]
    """The lowest first."""

    @property
    def bytes(self) -> int:
        return sum(one.size for one in self.layers)


class _Document(msgspec.Struct):
    schemaVersion: int = 0
    mediaType: str = ""
    manifests: list[Descriptor] | None = None
    config: Descriptor | None = None
    layers: list[Descriptor] | None = None


class _Process(msgspec.Struct):
    Entrypoint: list[str] | None = None
    Cmd: list[str] | None = None
    Env: list[str] | None = None
    User: str | None = None
    WorkingDir: str | None = None


class _RootFs(msgspec.Struct):
    diff_ids: list[str] = []


class _Config(msgspec.Struct):
    architecture: str = ""
    os: str = ""
    config: _Process | None = None
    rootfs: _RootFs = msgspec.field(default_factory=_RootFs)


def digest_of(document: bytes) -> str:
    return f"sha256:{hashlib.sha256(document).hexdigest()}"


def read_manifest(raw: bytes, architecture: str) -> Manifest | str:
    """A manifest, or the digest of the one for this machine if it is an index. Raises BadImage."""
    document = _decode(raw, _Document, "manifest")
    if document.manifests is not None or document.mediaType in _INDEXES:
        return _for_machine(document.manifests or [], architecture)
    if document.schemaVersion != 2 or document.config is None or document.layers is None:
        raise BadImage(
            "the image has a manifest of an old or unknown kind: push it again with a newer Docker or podman"
        )
    if len(document.layers) > _MOST_LAYERS:
        raise BadImage(f"the image has more than {_MOST_LAYERS} layers")
    for one in (document.config, *document.layers):
        _check(one)
    return Manifest(digest_of(raw), document.config, document.layers)


def read_config(raw: bytes, manifest: Manifest, architecture: str) -> tuple[ImageConfig, list[str]]:
    """The config, and the digest of the content of each layer, the lowest first. Raises BadImage."""
    if digest_of(raw) != manifest.config.digest:
        raise BadImage(
            f"the image's config has another digest than {manifest.config.digest}, which its manifest names"
        )
    document = _decode(raw, _Config, "config")
    diff_ids = document.rootfs.diff_ids
    if len(diff_ids) != len(manifest.layers):
        raise BadImage(
            f"the image's config names {len(diff_ids)} layers, its manifest {len(manifest.layers)}"
        )
    for diff_id in diff_ids:
        _check(Descriptor(diff_id, 0))
    if (document.os or "linux") != "linux" or (document.architecture or architecture) != architecture:
        raise BadImage(
            f"the image is for {document.os}/{document.architecture}; this machine runs linux/{architecture}"
        )
    process = document.config or _Process()
    config = ImageConfig(
        tuple(process.Entrypoint or ()),
        tuple(process.Cmd or ()),
        tuple(process.Env or ()),
        process.User or "",
        process.WorkingDir or "",
    )
    texts = (*config.entrypoint, *config.cmd, *config.env, config.user, config.working_dir)
    if any("\0" in text for text in texts):
        raise BadImage("the image's config has a text with a NUL byte")
    return config, diff_ids


def _for_machine(manifests: list[Descriptor], architecture: str) -> str:
    for one in manifests:
        platform = one.platform or Platform(architecture, "linux")
        if (platform.os, platform.architecture) == ("linux", architecture):
            _check(one)
            return one.digest
    known = sorted({f"{one.platform.os}/{one.platform.architecture}" for one in manifests if one.platform})
    raise BadImage(f"the image is not made for linux/{architecture}; there are {', '.join(known) or 'none'}")


def _check(one: Descriptor) -> None:
    name, _, value = one.digest.partition(":")
    if name != "sha256" or len(value) != 64 or value.strip("0123456789abcdef"):
        raise BadImage(f"the image uses the digest {one.digest[:100]!r}; only sha256 is supported")
    if one.size < 0:
        raise BadImage("the image has a layer of a negative size")
    if one.urls:
        raise BadImage("the image has a layer that is outside of its registry")


def _decode(raw: bytes, kind: type[Any], what: str) -> Any:
    if len(raw) > _LARGEST:
        raise BadImage(f"the image's {what} is larger than {_LARGEST} bytes")
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadImage(f"the image's {what} cannot be read: {error}") from None
