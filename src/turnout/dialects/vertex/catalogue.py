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


class MachineType(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpu: int
    memory: float
    """GiB."""
    accelerator: str = ""
    """The built-in accelerator, by its name in AcceleratorType."""
    count: int = 0
    tpu: bool = False


class PrebuiltImage(NamedTuple):
    runtime: str
    """The name of the image, which is its runtime in the settings: `tf-cpu.2-17.py310`."""
    wants: str
    """For messages: `TensorFlow 2.17 on Python 3.10`."""


class _Family(msgspec.Struct, forbid_unknown_fields=True):
    sizes: list[int]
    memory: float


class _Attach(msgspec.Struct, forbid_unknown_fields=True):
    types: list[str]
    counts: dict[str, list[int]]


class _Machines(msgspec.Struct, forbid_unknown_fields=True):
    families: dict[str, _Family]
    machines: dict[str, MachineType]
    attach: list[_Attach]


@cache
def machine_types() -> dict[str, MachineType]:
    """By machine type."""
    table = _machines()
    generated = {
        f"{name}-{size}": MachineType(size, size * family.memory)
        for name, family in table.families.items()
        for size in family.sizes
    }
    return generated | table.machines


@cache
def attachable_accelerators() -> dict[tuple[str, str], tuple[int, ...]]:
    """(machine type, accelerator type) → the counts that are allowed."""
    return {
        (machine, f"NVIDIA_TESLA_{name}"): tuple(counts)
        for row in _machines().attach
        for machine in row.types
        for name, counts in row.counts.items()
    }


def prebuilt(image: str) -> PrebuiltImage | None:
    """The content of one of Google's images; None for any other image."""
    repository = _REPOSITORY.fullmatch(image)
    match = repository and _IMAGE.fullmatch(repository[1])
    framework = match and _frameworks().get(match[1])
    if not repository or not match or not framework:
        return None
    python = f" on Python {match[4]}.{match[5]}" if match[4] else ""
    return PrebuiltImage(repository[1], f"{framework} {match[3].replace('-', '.')}{python}")


@cache
def _machines() -> _Machines:
    return msgspec.convert(_load("machines.toml"), _Machines)


@cache
def _frameworks() -> dict[str, str]:
    return msgspec.convert(_load("images.toml")["frameworks"], dict[str, str])


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("turnout.dialects.vertex").joinpath(name).read_text())
