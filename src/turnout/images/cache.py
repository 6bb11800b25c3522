"""The images of this machine: unpacked once by digest, with layers that they share."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from turnout import pools
from turnout.child_processes.bootstrap import Identity
from turnout.errors import Misconfigured, NotFound, NotStored, TurnoutError, WrongState
from turnout.images import index as records
from turnout.images import space
from turnout.images.collect import size_of, unused
from turnout.images.credentials import may_see, registry_for, scope_of
from turnout.images.download import Download, remove
from turnout.images.image import Image, Progress
from turnout.images.index import Index, NameRecord, key
from turnout.images.layer import LayerLimits
from turnout.images.layers import Layers
from turnout.images.pull import Pull, layer_paths
from turnout.images.reference import LOCAL_TRANSPORTS, Reference, is_internal, parse, transport_of
from turnout.images.skopeo import Skopeo, Unreachable, not_outside
from turnout.images.space import DiskFull
from turnout.limits import Limits
from turnout.registries import Registry

OnProgress = Callable[[Progress], None]

_FRESH_SECONDS = 10
"""For so long the registry is not asked again what `latest` is: the replicas of a gang get the same image."""
_ABANDONED_SECONDS = 86_400
_log = logging.getLogger(__name__)


class Archive(NamedTuple):
    """An image on this machine that the settings or root name, in skopeo's words: `oci:/images/trainer:1`."""

    source: str

    def __str__(self) -> str:
        return self.source


Source = Reference | Archive


def source_of(name: str) -> Source:
    """The source of a name in a job or in the settings. Raises Invalid."""
    return Archive(name) if transport_of(name) in LOCAL_TRANSPORTS else parse(name)


class CachedImage(NamedTuple):
    """A name in the cache, as `list` shows it."""

    name: NameRecord
    bytes: int
    files: int
    layers: int
    pulled_at: int
    holders: int
    skipped: list[str]


class ImageCache:
    """Its methods are called on the event loop."""

    def __init__(
        self,
        directory: Path,
        registries: Mapping[str, Registry],
        limits: Limits,
        owner: Identity | None = None,
        fetcher: Identity | None = None,
        proxies: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`owner`: who unpacks layers and owns them; `fetcher`: who runs skopeo. None: the service's user."""
        self._directory = directory
        self._downloads = directory / "downloads"
        self._file = directory / "images.json"
        self._registries = registries
        self._most_bytes = limits.image_cache_bytes
        self._limits = LayerLimits(limits.image_bytes, limits.image_files)
        self._owner = owner
        self._fetcher = fetcher
        self._proxies = dict(proxies or {})
        self._clock = clock
        self._layers = Layers(directory / "layers", owner)
        self._index = Index()
        self._pulls: dict[str, _SharedPull] = {}
        self._awaited: set[_SharedPull] = set()
        """Pulls whose waiters do not have the image yet. They may hold it as soon as they have it."""
        self._holders: dict[str, set[str]] = {}
        """Digests by holder."""
        self._complete = False
        """Whether all holders are known."""
        self._saving: asyncio.Task[None] | None = None
        self._dirty = False
        self._collecting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Reads the index, and deletes what a service that was killed left half-made. Raises Misconfigured."""
        try:
            self._index = await pools.disk.run(pools.OWN, self._prepare)
        except OSError as error:
            raise Misconfigured(f"{self._directory} cannot be used: {error.strerror}") from None
        existing = set(await self._layers.open(list(self._index.layers)))
        self._drop_layers(set(self._index.layers) - existing)

    async def close(self) -> None:
        if self._collecting:
            await asyncio.gather(self._collecting, return_exceptions=True)
        for pull in self._pulls.values():
            pull.task.cancel()
        await asyncio.gather(*(pull.task for pull in self._pulls.values()), return_exceptions=True)
        await self._layers.close()
        with contextlib.suppress(NotStored):
            await self._save()

    def lookup(self, source: Source, project: str) -> Image | None:
        """The image if it is in the cache and the project may use it. Quick: without network and disk.

        None for `latest` if the registry was not asked just now: `get` asks it.
        """
        found = self._find(source, project)
        if found is None or (self._may_move(source, found) and not self._is_fresh(found)):
            return None
        return self._use(found)

    def has(self, source: Source, project: str) -> bool:
        """Whether `get` needs no registry, or can do without it if it does not answer."""
        return self._find(source, project) is not None

    async def get(
        self, source: Source, project: str, on_progress: OnProgress | None = None, holder: str = ""
    ) -> Image:
        """From the cache, else pulled; equal pulls are joined. With a holder it is held when this returns.

        Raises TurnoutError: NotFound, Denied, Unavailable (the registry does not answer; again may help), Invalid (the
        image is not one that runs here), TooLarge, NotStored (the disk is full), Misconfigured (no skopeo).
        """
        image = self.lookup(source, project)
        if image is None:
            image = await self._pull_or_last(source, project, on_progress)
        if holder:
            self.hold(holder, image.digest)
        return image

    async def pull(self, source: Source, project: str, on_progress: OnProgress | None = None) -> Image:
        """Asks the registry what the name means now, also if it is in the cache. Raises as `get`."""
        name, scope = self._identify(source, project)
        registry = self._registries.get(scope) or self._registry(source, project)
        await self._join(source, name, scope, registry, on_progress)
        return self._use(self._index.names[key(name, scope)])

    async def add(self, source: Archive, name: Reference, on_progress: OnProgress | None = None) -> Image:
        """`turnout image import`: every project may use the name, which then needs no registry."""
        await self._join(source, str(name), "", None, on_progress)
        return self._use(self._index.names[key(str(name), "")])

    def hold(self, holder: str, digest: str) -> None:
        """Keep the image until `release`, from any thread. A holder is an attempt; it may hold several images.

        A new service holds nothing, and collects nothing until `holders_known`.
        """
        self._holders.setdefault(holder, set()).add(digest)

    def release(self, holder: str) -> None:
        """Idempotent."""
        self._holders.pop(holder, None)

    def find(self, digest: str) -> Image | None:
        """An image that a holder named before, whatever its names mean now."""
        return self._image(digest, "") if digest in self._index.images else None

    def holders_known(self) -> None:
        """Called once the engine has held the images of all that it runs."""
        self._complete = True
        self._collecting = asyncio.ensure_future(self._collect())

    def cached(self, project: str, root: bool) -> list[CachedImage]:
        """The names that the project may use; for root, all."""
        names = self._index.names.values()
        return [
            self._describe(one)
            for one in sorted(names, key=lambda one: (one.name, one.scope))
            if root or may_see(one.scope, project, self._registries)
        ]

    async def remove(self, name: str) -> int:
        """Removes a name, in all scopes, and what only it needs. Returns the bytes. Raises NotFound and WrongState."""
        found = [where for where, one in self._index.names.items() if one.name == name]
        if not found:
            raise NotFound(f"the image {name} is not in the cache: `turnout image ls` shows what is")
        held = self._held()
        for where in found:
            digest = self._index.names[where].digest
            others = any(one.digest == digest for at, one in self._index.names.items() if at not in found)
            if digest in held and not others:
                raise WrongState(f"a job uses the image {name}: stop it first, or wait for its end")
        for where in found:
            del self._index.names[where]
        return await self._drop_unnamed()

    async def collect(self) -> int:
        """Deletes the images whose last use is the longest ago until the cache is small enough. Returns the bytes."""
        if not self._complete:
            return 0
        for where in unused(self._index, self._held(), self._most_bytes):
            del self._index.names[where]
        return await self._drop_unnamed()

    async def _pull_or_last(self, source: Source, project: str, on_progress: OnProgress | None) -> Image:
        """What `latest` was at the last pull, if the registry does not say what it is now."""
        try:
            return await self.pull(source, project, on_progress)
        except Unreachable as error:
            found = self._find(source, project)
            if found is None:
                raise
            if on_progress:
                on_progress(Progress("done", message=f"{error.message}; the image of the last pull is used"))
            return self._use(found)

    async def _join(
        self, source: Source, name: str, scope: str, registry: Registry | None, on_progress: OnProgress | None
    ) -> None:
        """Waits for the pull of this name, and begins it if there is none. It ends if nobody waits for it any more."""
        where = key(name, scope)
        while (shared := self._pulls.get(where)) and shared.abandoned:
            await asyncio.wait([shared.task])
        if shared is None:
            shared = self._pulls[where] = _SharedPull()
            shared.task = asyncio.ensure_future(self._bring(shared, source, name, scope, registry))
            shared.task.add_done_callback(lambda task: self._ended(where, task))
            self._awaited.add(shared)
        try:
            await shared.wait(on_progress)
        finally:
            if not shared.waiting:
                self._awaited.discard(shared)
                if shared.brought:
                    self._collecting = asyncio.ensure_future(self._collect())

    async def _bring(
        self, shared: "_SharedPull", source: Source, name: str, scope: str, registry: Registry | None
    ) -> None:
        local = isinstance(source, Archive)
        directory = self._downloads / records.file_name(key(name, scope))
        fetcher = None if local else self._fetcher
        download = Download(directory, fetcher, self._owner)
        place = source.source if local else f"docker://{source.registry}/{source.repository}"
        skopeo = Skopeo(place, _shown(source), registry, directory, fetcher, self._proxies)
        pull = Pull(
            self._index, self._save, self._layers, download, skopeo, scope, self._limits, shared.report
        )
        shared.pull = pull
        try:
            digest = await self._run(pull, "" if local else _end(source), source, shared.report)
        except Unreachable:
            raise  # what was downloaded stays for the next try
        except TurnoutError as error:
            await download.remove()
            if isinstance(error, DiskFull):
                pull.needs.clear()
                pull.digest = ""
                await self._drop_unnamed()
            raise
        now = self._clock()
        imported = source.source if local and name != source.source else ""
        self._index.names[key(name, scope)] = NameRecord(name, digest, scope, imported, now, now)
        await self._save()
        shared.report(Progress("done"))

    async def _run(self, pull: Pull, name: str, source: Source, report: OnProgress) -> str:
        """While the disk is full, images that no job uses make room, the longest unused first."""
        while True:
            try:
                try:
                    return await pull.run(name, isinstance(source, Archive))
                except OSError as error:
                    raise space.not_stored(f"the image {_shown(source)} could not be stored", error) from None
            except DiskFull as error:
                deleted = await self._make_room(error.missing)
                if not deleted:
                    raise DiskFull(
                        f"{error.message}, and the cache has no other images that no job uses: "
                        "`turnout image ls` shows what it has, `turnout image rm NAME` also deletes imported images"
                    ) from None
                report(Progress("waiting", message=f"the disk is full: {', '.join(deleted)} made room"))

    async def _make_room(self, missing: int) -> list[str]:
        """Deletes images that no job uses. Returns their names; none if that would not be enough."""
        if not self._complete:
            return []
        index, held = self._index, self._held()
        before = size_of(index, held)
        names = unused(index, held, before - missing)
        rest = [one.digest for where, one in index.names.items() if where not in names]
        if before - size_of(index, held, rest) < missing:
            return []
        gone = [index.names.pop(where).name for where in names]
        await self._drop_unnamed()
        return gone

    def _ended(self, where: str, task: "asyncio.Task[None]") -> None:
        self._pulls.pop(where, None)
        if not task.cancelled():
            task.exception()  # those who waited have it

    async def _collect(self) -> None:
        try:
            await self.collect()
        except TurnoutError as error:
            _log.error("images that no job uses could not be deleted: %s", error)

    def _identify(self, source: Source, project: str) -> tuple[str, str]:
        """The name and the scope under which the cache has it."""
        return str(source), scope_of(source, project, self._registries) if isinstance(
            source, Reference
        ) else ""

    def _registry(self, source: Source, project: str) -> Registry | None:
        if isinstance(source, Archive):
            return None
        found = registry_for(source.registry, project, self._registries)
        if found is None and is_internal(source.host):
            raise not_outside(str(source), source.registry)
        return found[1] if found else None

    def _find(self, source: Source, project: str) -> NameRecord | None:
        name, scope = self._identify(source, project)
        names = self._index.names
        found = names.get(key(name, scope)) or names.get(key(name, ""))
        return found if found and found.digest in self._index.images else None

    def _may_move(self, source: Source, found: NameRecord) -> bool:
        return isinstance(source, Reference) and source.moves and not found.source

    def _is_fresh(self, found: NameRecord) -> bool:
        return 0 <= self._clock() - found.checked_at < _FRESH_SECONDS

    def _use(self, found: NameRecord) -> Image:
        """The time of use is stored with the next change: it need not survive a crash."""
        found.used_at = self._clock()
        return self._image(found.digest, found.name)

    def _image(self, digest: str, name: str) -> Image:
        record = self._index.images[digest]
        size, files, _ = self._size(record.diff_ids)
        layers = layer_paths(self._layers, self._index.layers, record.diff_ids)
        return Image(digest, layers, record.config, name, size, files)

    def _size(self, diff_ids: list[str]) -> tuple[int, int, list[str]]:
        found = [self._index.layers[diff_id] for diff_id in dict.fromkeys(diff_ids)]
        skipped = [line for one in found for line in one.skipped]
        return sum(one.bytes for one in found), sum(one.files for one in found), skipped

    def _describe(self, one: NameRecord) -> CachedImage:
        record = self._index.images[one.digest]
        size, files, skipped = self._size(record.diff_ids)
        holders = sum(one.digest in digests for digests in list(self._holders.values()))
        return CachedImage(one, size, files, len(record.diff_ids), record.pulled_at, holders, skipped)

    def _held(self) -> set[str]:
        return set().union(*list(self._holders.values()), (pull.digest for pull in self._awaited))

    def _drop_layers(self, gone: set[str]) -> None:
        """Forgets images whose layers are not on the disk."""
        if not gone:
            return
        _log.error(
            "%d layers of images are missing in %s: their images are pulled again", len(gone), self._directory
        )
        index = self._index
        index.layers = {diff_id: one for diff_id, one in index.layers.items() if diff_id not in gone}
        index.images = {
            digest: one for digest, one in index.images.items() if not gone.intersection(one.diff_ids)
        }
        index.names = {where: one for where, one in index.names.items() if one.digest in index.images}

    async def _drop_unnamed(self) -> int:
        """Deletes images without a name and a holder, and layers that no image has. Returns the bytes."""
        if not self._complete:
            await self._save()
            return 0
        index = self._index
        wanted = {one.digest for one in index.names.values()} | self._held()
        index.images = {digest: one for digest, one in index.images.items() if digest in wanted}
        needed = {diff_id for one in index.images.values() for diff_id in one.diff_ids}
        for pull in self._pulls.values():
            needed |= pull.needs()
        gone = [diff_id for diff_id in index.layers if diff_id not in needed]
        freed = sum(index.layers.pop(diff_id).bytes for diff_id in gone)
        await self._layers.remove(gone, self._save)
        return freed

    async def _save(self) -> None:
        """Stores the index, with changes that come while it is written. Raises NotStored."""
        self._dirty = True
        if self._saving is None or self._saving.done():
            self._saving = asyncio.ensure_future(self._write())
        try:
            await asyncio.shield(self._saving)
        except OSError as error:
            raise space.not_stored(f"{self._file} cannot be written", error) from None

    async def _write(self) -> None:
        while self._dirty:
            self._dirty = False
            encoded = msgspec.json.encode(self._index)
            await pools.disk.run(pools.OWN, records.write, self._file, encoded)

    def _prepare(self) -> Index:
        self._directory.mkdir(mode=0o711, exist_ok=True)
        self._downloads.mkdir(mode=0o711, exist_ok=True)
        for path in self._downloads.iterdir():
            if time.time() - path.lstat().st_mtime > _ABANDONED_SECONDS:
                remove(path)
        return records.read(self._file)


class _SharedPull:
    """A pull, and those who wait for it."""

    task: "asyncio.Task[None]"
    pull: Pull | None = None

    def __init__(self) -> None:
        self.waiting: dict[object, OnProgress | None] = {}
        self._last: Progress | None = None
        self.abandoned = False
        """Whether nobody waits any more, and it is about to end."""

    async def wait(self, on_progress: OnProgress | None) -> None:
        me = object()
        self.waiting[me] = on_progress
        if on_progress and self._last:
            on_progress(self._last)
        try:
            await asyncio.shield(self.task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self.task.cancelled() and not (caller and caller.cancelling()):
                raise NotStored(
                    "the service is stopping: it continues the pull of the image at its next start"
                ) from None
            raise
        finally:
            del self.waiting[me]
            if not self.waiting and not self.task.done():
                self.abandoned = True
                self.task.cancel()

    def report(self, progress: Progress) -> None:
        self._last = progress
        for listener in self.waiting.values():
            if listener:
                listener(progress)

    def needs(self) -> set[str]:
        return self.pull.needs if self.pull else set()

    @property
    def brought(self) -> bool:
        return self.task.done() and not self.task.cancelled() and self.task.exception() is None

    @property
    def digest(self) -> str:
        return self.pull.digest if self.pull else ""


def _end(source: Reference) -> str:
    return f"@{source.digest}" if source.digest else f":{source.tag}"


def _shown(source: Source) -> str:
    return source.source if isinstance(source, Archive) else source.short
