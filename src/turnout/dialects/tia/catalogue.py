"""The runtimes and scale tiers of the two data files beside this one."""

import tomllib
from functools import lru_cache
from importlib import resources

import msgspec


class RuntimeFamily(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cos: bool = False
    ps: bool = True
    master: bool = True
    min_gpus: int = 0
    spark: bool = False
    not_for_jobs: str = ""


class CatalogueRuntime(msgspec.Struct, frozen=True):
    name: str
    family: RuntimeFamily
    wants: str


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Machine types as users write them."""

    master: str = ""
    worker: str = ""
    workers: int = 0
    ps: str = ""
    ps_count: int = 0


class _RuntimeEntry(msgspec.Struct, forbid_unknown_fields=True):
    family: str
    wants: str


class _Runtimes(msgspec.Struct, forbid_unknown_fields=True):
    families: dict[str, RuntimeFamily]
    runtimes: dict[str, _RuntimeEntry]


CUSTOM = "CUSTOM"


@lru_cache(maxsize=1)
def runtimes() -> dict[str, CatalogueRuntime]:
    table = msgspec.convert(_load("runtimes.toml"), _Runtimes)
    return {
        name: CatalogueRuntime(name, table.families[entry.family], entry.wants)
        for name, entry in table.runtimes.items()
    }


@lru_cache(maxsize=1)
def tiers() -> dict[str, Tier]:
    """The sixteen presets; CUSTOM is not among them."""
    return msgspec.convert(_load("tiers.toml"), dict[str, Tier])


def _load(name: str) -> dict[str, object]:
    return tomllib.loads(resources.files("turnout.dialects.tia").joinpath(name).read_text())
