"""Machine types and Google's own images: the two data files beside this one."""

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec

_REPOSITORY = re.compile(
    r"(?:(?:us|europe|asia)-docker\.pkg\.dev/vertex-ai/training|(?:(?:us|eu|asia)\.)?gcr\.io/cloud-aiplatform/training)"
    r"/([^/:@]+)(?:[:@].*)?"
)
_IMAGE = re.compile(r"([a-z-]+?)-(cpu|gpu|tpu|xla)\.([0-9]+(?:-[0-9]+)*)(?:\.(?:py|cp)([0-9])([0-9]+))?")


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpu: int
    memory: float
    """GiB."""
    accelerator: str = ""
    """What is built in, as AcceleratorType names it."""
    count: int = 0
    tpu: bool = False


class Prebuilt(NamedTuple):
    runtime: str
    """The image's own name, which the settings know it by: `tf-cpu.2-17.py310`."""
    wants: str
    """For people: `TensorFlow 2.17 on Python 3.10`."""


class _Family(msgspec.Struct, forbid_unknown_fields=True):
    sizes: list[int]
    memory: float


class _Attach(msgspec.Struct, forbid_unknown_fields=True):
    types: list[str]
    counts: dict[str, list[int]]


class _Machines(msgspec.Struct, forbid_unknown_fields=True):
    families: dict[str, _Family]
    machines: dict[str, Machine]
    attach: list[_Attach]


@cache
def machines() -> dict[str, Machine]:
    """By machine type."""
    table = _machines()
    grown = {
        f"{name}-{size}": Machine(size, size * family.memory)
        for name, family in table.families.items()
        for size in family.sizes
    }
    return grown | table.machines


@cache
def attachable() -> dict[tuple[str, str], tuple[int, ...]]:
    """(machine type, accelerator type) → how many there may be."""
    return {
        (machine, f"NVIDIA_TESLA_{name}"): tuple(counts)
        for row in _machines().attach
        for machine in row.types
        for name, counts in row.counts.items()
    }


def prebuilt(image: str) -> Prebuilt | None:
    """What one of Google's images has in it; None for any other."""
    place = _REPOSITORY.fullmatch(image)
    match = place and _IMAGE.fullmatch(place[1])
    framework = match and _frameworks().get(match[1])
    if not place or not match or not framework:
        return None
    python = f" on Python {match[4]}.{match[5]}" if match[4] else ""
    return Prebuilt(place[1], f"{framework} {match[3].replace('-', '.')}{python}")


@cache
def _machines() -> _Machines:
    return msgspec.convert(_load("machines.toml"), _Machines)


@cache
def _frameworks() -> dict[str, str]:
    return msgspec.convert(_load("images.toml")["frameworks"], dict[str, str])


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("turnout.dialects.vertex").joinpath(name).read_text())
