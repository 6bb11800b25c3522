"""The images of launches: fetched into the cache, held as long as the attempt lives, shown to the user of the job."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from turnout import pools
from turnout.engines.local.images import accounts_in_image
from turnout.engines.local.images.layer_owner import LayerOwner
from turnout.engines.local.machine.machine import Machine
from turnout.engines.local.users.account import Account
from turnout.images import Image, ImageCache, Progress, source_of
from turnout.job import Attempt, Launch, Noted, Report
from turnout.paths import Paths
from turnout.runner.images import ImageRoot

_EVENT_SECONDS = 10.0
"""Between two events about one pull."""

Note = Callable[[str], None]


class JobImages:
    def __init__(
        self, cache: ImageCache | None, paths: Paths, machine: Machine, report: Callable[[Report], None]
    ) -> None:
        """`cache`: None where nothing runs in images."""
        self._report = report
        self._cache = cache
        self._layers = paths.images / "layers"
        self._owner = LayerOwner(self._layers, paths.layers)
        self._accounts = machine.accounts
        self._no_images = machine.no_images
        self._digests: dict[Attempt, list[str]] = {}
        """What an attempt runs in, in the order of `names`: a replica that starts again gets the same."""
        self._roots: dict[tuple[str, int], ImageRoot] = {}
        """By digest and user."""

    def refuses(self, launch: Launch) -> str:
        """Why the launch cannot run in its images; empty: it can."""
        if not names(launch) or not (self._no_images or self._cache is None):
            return ""
        return f"this machine cannot run images: {self._no_images}"

    def cached(self, launch: Launch) -> dict[str, ImageRoot] | None:
        """Those of a launch, by `Program.root`; None: they have to be fetched. Raises TransferFailed."""
        found: dict[str, Image] = {}
        wanted = names(launch)
        if self._cache is None or not wanted:
            return {}
        user, held = self._accounts.of(launch.project).uid, self._held(launch, self._cache)
        for name in wanted:
            image = held.get(name) or self._cache.lookup(source_of(name), launch.project)
            if image is None or (image.digest, user) not in self._roots:
                return None
            found[name] = image
        return self._hold(launch, found)

    async def fetch(self, launch: Launch) -> dict[str, ImageRoot]:
        """Pulls those that are not in the cache, and reports the progress. Raises TurnoutError."""
        if self._cache is None:
            return {}
        held, holder = self._held(launch, self._cache), str(launch.attempt)
        found: dict[str, Image] = {}
        for name in names(launch):
            progress = _Notes(_shown(launch, name), partial(self._note, launch))
            found[name] = held.get(name) or await self._cache.get(
                source_of(name), launch.project, progress, holder
            )
        return await pools.service.run(pools.OWN, self._hold, launch, found)

    def restore(self, attempt: Attempt, digests: Sequence[str]) -> None:
        """The supervisor runs an attempt in these images."""
        if digests:
            self._digests[attempt] = list(digests)
        if self._cache:
            for digest in digests:
                self._cache.hold(str(attempt), digest)

    def synced(self) -> None:
        """All attempts that the supervisor runs were restored."""
        if self._cache:
            self._cache.holders_known()

    def forget(self, attempt: Attempt) -> None:
        self._digests.pop(attempt, None)
        if self._cache:
            self._cache.release(str(attempt))

    def used(self, launch: Launch, images: Mapping[str, ImageRoot]) -> None:
        """Reports what the launch runs in."""
        for name, image in images.items():
            self._note(launch, f"the image {_shown(launch, name)}, {image.digest}", image=True)

    def close(self) -> None:
        self._owner.close()

    def _note(self, launch: Launch, text: str, *, image: bool = False) -> None:
        self._report(Noted(launch.attempt, time.time_ns(), text, image))

    def _held(self, launch: Launch, cache: ImageCache) -> dict[str, Image]:
        """By name, the images that the attempt has already."""
        pairs = zip(names(launch), self._digests.get(launch.attempt, ()), strict=False)
        found = ((name, cache.find(digest)) for name, digest in pairs)
        return {name: image for name, image in found if image}

    def _hold(self, launch: Launch, images: dict[str, Image]) -> dict[str, ImageRoot]:
        self.restore(launch.attempt, [image.digest for image in images.values()])
        account = self._accounts.of(launch.project)
        return {name: self._root(image, account) for name, image in images.items()}

    def _root(self, image: Image, account: Account) -> ImageRoot:
        key = image.digest, account.uid
        if key not in self._roots:
            directory = self._owner.directory(account)
            self._roots[key] = _root(
                image, [directory / layer.relative_to(self._layers) for layer in image.layers]
            )
        return self._roots[key]


def names(launch: Launch) -> list[str]:
    return list(dict.fromkeys(role.program.root for role in launch.spec.roles if role.program.root))


def _shown(launch: Launch, name: str) -> str:
    """What the user calls it: the settings may have a source on this machine for that."""
    programs = (role.program for role in launch.spec.roles if role.program.root == name)
    return next(filter(None, (program.image or program.runtime for program in programs)), name)


def _root(image: Image, layers: Sequence[Path]) -> ImageRoot:
    config = image.config
    return ImageRoot(
        tuple(map(str, layers)),
        image.digest,
        config.entrypoint,
        config.cmd,
        tuple((name, value) for name, _, value in (text.partition("=") for text in config.env) if name),
        config.working_dir,
        config.user,
        accounts_in_image.users(layers),
        accounts_in_image.groups(layers),
    )


class _Notes:
    """Turns the progress of a pull into few sentences."""

    def __init__(self, name: str, note: Note) -> None:
        self._name = name
        self._note = note
        self._stage = ""
        self._last = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.stage == self._stage and now - self._last < _EVENT_SECONDS:
            return
        self._stage, self._last = progress.stage, now
        if progress.stage != "done":
            self._note(f"image {self._name}: {progress.message or progress.stage}")
