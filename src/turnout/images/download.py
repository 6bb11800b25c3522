"""The download of one image: a directory with skopeo's blobs. It stays after a break, and the next try resumes it."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from turnout import chaos, pools
from turnout.child_processes.bootstrap import Identity
from turnout.images.fetcher import PARTIAL
from turnout.images.manifest import Descriptor, Manifest
from turnout.images.skopeo import Skopeo, Unreachable

_LOOK_SECONDS = 0.5
_SILENT_SECONDS = 120
PAUSES = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Seconds before each further try that brought no new layer."""

OnBytes = Callable[[int, int], None]
"""Called with the number of bytes and of complete layers."""


class Download:
    def __init__(self, directory: Path, fetcher: Identity | None, reader: Identity | None) -> None:
        """`fetcher`: who runs skopeo; `reader`: who unpacks the blobs."""
        self.directory = directory
        self._fetcher = fetcher
        self._reader = reader

    async def prepare(self) -> None:
        await pools.disk.run(pools.OWN, self._prepare)

    async def remove(self) -> None:
        await pools.disk.run(pools.OWN, remove, self.directory)

    async def present(self, wanted: list[Descriptor]) -> int:
        """How many bytes of these layers an earlier try has left."""
        return (await pools.disk.run(pools.OWN, self._progress, wanted))[0]

    def blob(self, layer: Descriptor) -> Path:
        return self.directory / "blobs" / "sha256" / _name(layer)

    async def fetch(
        self, skopeo: Skopeo, name: str, manifest: Manifest, wanted: list[Descriptor], on_bytes: OnBytes,
        pauses: Iterable[float] = PAUSES,
    ) -> None:  # fmt: skip
        """Brings these layers. After a break it goes on with the layers that are missing. Raises TurnoutError."""
        rest, complete = iter(pauses), 0
        while True:
            try:
                await self._copy(skopeo, name, manifest, wanted, on_bytes)
                await pools.disk.run(pools.OWN, self._check_sizes, wanted)
            except Unreachable:
                before, complete = complete, (await pools.disk.run(pools.OWN, self._progress, wanted))[1]
                if complete > before:
                    rest = iter(pauses)
                pause = next(rest, None)
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                return

    async def _copy(
        self, skopeo: Skopeo, name: str, manifest: Manifest, wanted: list[Descriptor], on_bytes: OnBytes
    ) -> None:
        fetched = {_name(one): one.size for one in wanted}
        present = {_name(one): one.size for one in manifest.layers if _name(one) not in fetched}
        copying = asyncio.ensure_future(skopeo.copy(name, present, fetched))
        last, since = -1, asyncio.get_running_loop().time()
        try:
            while not copying.done():
                await asyncio.wait([copying], timeout=_LOOK_SECONDS)
                size, complete = await pools.disk.run(pools.OWN, self._progress, wanted)
                on_bytes(size, complete)
                chaos.point("image-downloading")
                now = asyncio.get_running_loop().time()
                if size != last:
                    last, since = size, now
                elif now - since > _SILENT_SECONDS and not copying.done():
                    raise Unreachable(f"the registry sent nothing for {_SILENT_SECONDS} seconds")
            await copying
        finally:
            if not copying.done():
                copying.cancel()
                await asyncio.gather(copying, return_exceptions=True)

    def _prepare(self) -> None:
        """Only skopeo writes into the directory, and only the unpacker may read it."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        if self._reader:
            self.directory.chmod(0o710)
            os.chown(self.directory, self._fetcher.uid if self._fetcher else -1, self._reader.gid)

    def _progress(self, wanted: list[Descriptor]) -> tuple[int, int]:
        sizes = [_size(self.blob(one)) for one in wanted]
        partial = sum(map(_size, self._partial()))
        size = min(sum(sizes) + partial, sum(one.size for one in wanted))
        return size, sum(found == one.size for found, one in zip(sizes, wanted, strict=True))

    def _check_sizes(self, wanted: list[Descriptor]) -> None:
        for one in wanted:
            if _size(self.blob(one)) != one.size:
                raise Unreachable(
                    f"the registry sent a layer without the {one.size} bytes that the manifest names"
                )

    def _partial(self) -> list[Path]:
        return [path for path in self.directory.iterdir() if path.is_file() and path.name.startswith(PARTIAL)]


def remove(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _name(layer: Descriptor) -> str:
    return layer.digest.removeprefix("sha256:")
