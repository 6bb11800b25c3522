"""What a job gets for the image that it names: the image, a runtime that stands for it, or this machine's Python.

In this order: what `[images]` says; the image, if it is in the cache or `[registries]` names its registry; the runtime
of that name, for images of the clouds; and for all others what `[images] "*"` says. Without that it is the machine's
Python where only this machine can reach the service, so that a first job runs, and the image elsewhere.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from turnout import config
from turnout.errors import Invalid, Unsupported
from turnout.images import ImageCache, Target, parse, source_of, target_of
from turnout.images.credentials import registry_for
from turnout.images.reference import transport_of
from turnout.job import Program
from turnout.registries import Registry

PULL = "pull"
"""The value in `[images]` that has an image pulled."""


class ImageChoice(NamedTuple):
    """What stands for an image."""

    runtime: str = ""
    """A runtime of the settings or of a catalogue."""
    root: str = ""
    """See Program.root. Empty with an empty `runtime`: this machine's Python."""
    note: str = ""
    """An event for the user."""
    notice: str = ""
    """See Program.notice."""


class ImageRules:
    """The rules of an installation."""

    def __init__(
        self,
        images: Mapping[str, str] = MappingProxyType({}),
        runtimes: Mapping[str, config.RuntimeSettings] = MappingProxyType({}),
        cache: ImageCache | None = None,
        registries: Mapping[str, Registry] = MappingProxyType({}),
        remote: Collection[str] = (),
        without_images: Collection[str] = (),
        *,
        host_python: bool = True,
        default: str = "",
        no_images: Callable[[], str] = lambda: "there is no cache of images",
        no_pull: Callable[[], str] = lambda: "",
    ) -> None:
        """`registries`: those of the settings. `remote`: clusters whose own software runs images.
        `without_images`: clusters whose nodes run programs without one. `host_python`: it stands for images that
        nothing else stands for.

        `default`: the runtime that is used in place of this machine's Python. `no_images`, `no_pull`: why images cannot
        be run or pulled here; empty: they can.
        """
        self._images = images
        self._runtimes = runtimes
        self._cache = cache
        self._registries = registries
        self._remote = remote
        self._without_images = without_images
        self._host_python = host_python
        self._default = default
        self._no_images = no_images
        self._no_pull = no_pull

    @staticmethod
    def of(settings: config.Settings) -> "ImageRules":
        """The rules of a service without images."""
        return ImageRules(settings.images, settings.runtimes)

    def settle(
        self, program: Program, project: str, cluster: str, notes: dict[str, None], preset: str = ""
    ) -> Program:
        """The program with what stands for the image or runtime that it names. `preset`: see `choose`.

        Raises Invalid for what is not the name of an image, and Unsupported if nothing stands for it.
        """
        if program.image:
            choice = self.choose(program.image, project, cluster, preset)
        else:
            choice = self._of_runtime(program.runtime, cluster)
        if choice.note:
            notes[choice.note] = None
        runtime = choice.runtime or ("" if choice.root else program.runtime)
        return msgspec.structs.replace(program, runtime=runtime, root=choice.root, notice=choice.notice)

    def choose(self, image: str, project: str, cluster: str = "", preset: str = "") -> ImageChoice:
        """`preset`: the runtime of a catalogue that has the image's name. Raises Invalid and Unsupported."""
        if transport := transport_of(image):
            raise Invalid(
                f"the image {image[:200]!r} is not in a registry: a job names registry/repository:tag, and only an "
                f"operator can use {transport}:"
            )
        target = target_of(image, self._images, self._runtimes)
        if cluster in self._remote:
            return ImageChoice(target.value if target and target.kind == "runtime" else preset)
        if cluster in self._without_images:
            return self._on_nodes(target, image, cluster, preset)
        if target and target.pattern != "*":
            return self._of_target(target, image, project)
        if self._is_here(image, project):
            return ImageChoice(root=image)
        if preset:
            return self._of_runtime(preset, cluster)
        if target:
            return self._of_target(target, image, project)
        return self._host(image) if self._host_python else self._of_image(image, image, project)

    def _on_nodes(self, target: Target | None, image: str, cluster: str, preset: str) -> ImageChoice:
        if preset and (target is None or target.pattern == "*"):
            return self._of_runtime(preset, cluster)
        if target and target.kind == "runtime" and (target.value != PULL or PULL in self._runtimes):
            return self._of_runtime(target.value, cluster)
        name = image[:200]
        mapped = f'[images] "{name}" = "my-runtime" lets a runtime stand for it'
        if target.kind == "host" if target else self._host_python:
            return ImageChoice(
                note=f"the image {name} is not used: the nodes' Python runs the program; {mapped}"
            )
        raise Unsupported(
            f"the image {name!r} cannot be run: this cluster's nodes run programs without images. {mapped}; "
            'or let the nodes\' Python run such programs: [images] "*" = "host"'
        )

    def _of_target(self, target: Target, image: str, project: str) -> ImageChoice:
        match target.kind:
            case "host":
                return self._host(image)
            case "image" | "archive":
                return self._of_image(target.value, image, project)
            case _ if target.value == PULL and PULL not in self._runtimes:
                return self._of_image(image, image, project)
            case _:
                return self._of_runtime(target.value, "")

    def _of_image(self, source: str, image: str, project: str) -> ImageChoice:
        """`source` stands for the image."""
        why = self._no_images()
        if not why and (self._cache is None or not self._cache.has(source_of(source), project)):
            why = self._no_pull()
        if why:
            raise Unsupported(_three_ways(image, why))
        return ImageChoice(root=source)

    def _of_runtime(self, name: str, cluster: str) -> ImageChoice:
        settings = self._runtimes.get(name)
        if settings is None or not settings.image or cluster in self._remote:
            return ImageChoice(name)
        image = settings.image
        if cluster in self._without_images:
            raise Unsupported(
                f"the runtime {name} is the image {image}, and this cluster's nodes run programs without images"
            )
        if why := self._no_images():
            raise Unsupported(f"the runtime {name} is the image {image}, which cannot be run here: {why}")
        return ImageChoice(name, settings.image)

    def _host(self, image: str) -> ImageChoice:
        python = f"the runtime {self._default}" if self._default else "this machine's Python"
        text = f"the image {image[:200]} is not used: {python} runs the program"
        how = f"`turnout image pull {image[:200]}` brings it, or [images] maps it to a runtime"
        return ImageChoice(note=f"{text}; {how}", notice=f"[turnout] {text}. {how}.")

    def _is_here(self, image: str, project: str) -> bool:
        """Whether the image can be had without asking a registry that the settings do not name."""
        if self._cache is None or self._no_images():
            return False
        try:
            reference = parse(image)
        except Invalid:
            return False
        if self._cache.has(reference, project):
            return True
        return registry_for(reference.registry, project, self._registries) is not None and not self._no_pull()


def _three_ways(image: str, why: str) -> str:
    name = image[:200]
    return (
        f"the image {name!r} cannot be run here: {why}. Bring it with `turnout image pull {name}` or `turnout image "
        f'import SOURCE {name}`; or let something else stand for it: [images] "{name}" = "my-runtime"; or let this '
        'machine\'s Python run such programs: [images] "*" = "host"'
    )
