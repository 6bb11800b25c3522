"""Brings one image into the cache: manifest, config, the layers that are missing, and then the unpacked layers."""

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from turnout import chaos, pools
from turnout.errors import TooLarge
from turnout.images import space
from turnout.images.download import Download
from turnout.images.image import Progress
from turnout.images.index import ImageRecord, Index, LayerRecord
from turnout.images.layer import LayerLimits
from turnout.images.layers import Layers
from turnout.images.manifest import BadImage, Descriptor, Manifest, digest_of, read_config, read_manifest
from turnout.images.skopeo import Skopeo
from turnout.images.space import DiskFull

_ARCHITECTURES: Mapping[str, str] = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
}
"""Of the kernel -> as images name them."""

Report = Callable[[Progress], None]


def architecture() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


class Part(NamedTuple):
    """A layer of the image."""

    blob: Descriptor
    diff_id: str


class Pull:
    """`run` returns the image's digest when index and disk have all of it. Each layer is recorded as it is unpacked."""

    def __init__(
        self,
        index: Index,
        save: Callable[[], Awaitable[None]],
        layers: Layers,
        download: Download,
        skopeo: Skopeo,
        scope: str,
        limits: LayerLimits,
        report: Report,
    ) -> None:
        self._index = index
        self._save = save
        self._layers = layers
        self._download = download
        self._skopeo = skopeo
        self._scope = scope
        self._limits = limits
        self._report = report
        self.needs: set[str] = set()
        """The layers of the image, once they are known: they must not be collected."""
        self.digest = ""
        """Of the image, once the index has it: it must not be collected either."""

    async def run(self, name: str, local: bool) -> str:
        """`name`: `:tag` or `@digest` in a registry, which `local` images do not have. Raises TurnoutError."""
        self._report(Progress("resolving"))
        await self._download.prepare()
        manifest, name = await self._manifest(name, local)
        raw = await self._skopeo.config("" if local else name)
        config, diff_ids = read_config(raw, manifest, architecture())
        self.needs.update(diff_ids)
        parts = [Part(blob, diff_id) for blob, diff_id in zip(manifest.layers, diff_ids, strict=True)]
        missing = [one for one in parts_by_content(parts) if not self._may_use(one.diff_id)]
        if missing:
            await self._fetch(manifest, name, missing)
            await self._unpack(missing)
        self._check_size(diff_ids)
        self.digest = manifest.digest
        self._index.images[manifest.digest] = ImageRecord(diff_ids, config, int(time.time()))
        chaos.point("image-complete")
        await self._save()
        await self._download.remove()
        return manifest.digest

    async def _manifest(self, name: str, local: bool) -> tuple[Manifest, str]:
        """The manifest for this machine, and the name of it that cannot change any more."""
        raw = await self._skopeo.manifest(name)
        _check_digest(raw, name)
        found = read_manifest(raw, architecture())
        if isinstance(found, str):
            if local:
                raise BadImage(
                    "the source has images for several machines: copy the one for this machine out of it first, "
                    f"with skopeo --override-arch {architecture()} copy"
                )
            raw = await self._skopeo.manifest(f"@{found}")
            _check_digest(raw, f"@{found}")
            found = read_manifest(raw, architecture())
            if isinstance(found, str):
                raise BadImage("the image's index names another index")
        if found.bytes > self._limits.bytes:
            raise TooLarge(
                f"the image has {found.bytes} bytes of compressed layers; at most {self._limits.bytes} are accepted "
                "([limits] image_bytes)"
            )
        return found, "" if local else f"@{found.digest}"

    def _may_use(self, diff_id: str) -> bool:
        """Whether the layer is in the cache, and was brought without credentials or by the same ones."""
        record = self._index.layers.get(diff_id)
        return record is not None and bool({"", self._scope} & set(record.scopes))

    async def _fetch(self, manifest: Manifest, name: str, missing: list[Part]) -> None:
        wanted = [one.blob for one in missing]
        total, count = sum(one.size for one in wanted), len(manifest.layers)
        present = count - len(wanted)
        rest = total - await self._download.present(wanted)
        free = await pools.disk.run(pools.OWN, space.free, self._download.directory)
        if rest > free:
            raise DiskFull(
                f"the disk is full: {rest} bytes of the image's layers are to be fetched, and "
                f"{self._download.directory.parent} has {free} bytes left",
                rest - free,
            )

        def on_bytes(size: int, complete: int) -> None:
            self._report(Progress("downloading", size, total, present + complete, count))

        await self._download.fetch(self._skopeo, name, manifest, wanted, on_bytes)

    async def _unpack(self, missing: list[Part]) -> None:
        done = 0

        async def unpack(one: Part) -> None:
            nonlocal done
            await self._unpack_layer(one)
            done += 1
            self._report(Progress("unpacking", layer=done, layers=len(missing)))

        self._report(Progress("unpacking", layer=0, layers=len(missing)))
        # If one fails, the others go on: what a process has unpacked is recorded, so that it can be deleted.
        for result in await asyncio.gather(*map(unpack, missing), return_exceptions=True):
            if result:
                raise result

    async def _unpack_layer(self, one: Part) -> None:
        blob = self._download.blob(one.blob)
        record = self._index.layers.get(one.diff_id)
        if record is None:
            record = await self._layers.unpack(blob, one.blob.digest, one.diff_id, self._limits)
            record = self._index.layers.setdefault(one.diff_id, record)
        if one.blob.digest not in record.blobs or (record.scopes and self._scope not in record.scopes):
            # Another pull unpacked it: this one has to show that it has the layer too.
            await self._layers.check(blob, one.blob.digest, one.diff_id, self._limits)
        _add(record.blobs, one.blob.digest)
        _add(record.scopes, self._scope)
        chaos.point("image-layer")
        await self._save()

    def _check_size(self, diff_ids: list[str]) -> None:
        records = [self._index.layers[diff_id] for diff_id in set(diff_ids)]
        for what, most in zip(("bytes", "files"), self._limits, strict=True):
            found = sum(getattr(one, what) for one in records)
            if found > most:
                raise TooLarge(
                    f"the image has {found} {what}; at most {most} are accepted ([limits] image_{what})"
                )


def parts_by_content(parts: list[Part]) -> list[Part]:
    """One part for each content: an image may have the same layer several times."""
    return list({one.diff_id: one for one in parts}.values())


def layer_paths(layers: Layers, records: Mapping[str, LayerRecord], diff_ids: list[str]) -> tuple[Path, ...]:
    """The top layer first. A layer that comes twice counts where it is the highest; an opaque one hides the rest."""
    found: dict[str, Path] = {}
    for diff_id in reversed(diff_ids):
        found.setdefault(diff_id, layers.path(diff_id))
        if records[diff_id].opaque:
            break
    return tuple(found.values())


def _check_digest(raw: bytes, name: str) -> None:
    if name.startswith("@") and digest_of(raw) != name[1:]:
        raise BadImage(f"the registry answers with another manifest than {name[1:]}")


def _add(values: list[str], value: str) -> None:
    if value not in values:
        values.append(value)
