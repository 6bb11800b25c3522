"""The engines and flavors of the two data files beside this one, and how answers show them."""

import tomllib
from functools import lru_cache
from importlib import resources
from typing import Any

import msgspec

from turnout.dialects.modelarts.script import Family
from turnout.job import Resources

GB = 1 << 30

FAMILIES: dict[str, Family] = {
    "pytorch": Family.PYTORCH,
    "tensorflow": Family.TENSORFLOW,
    "horovod": Family.MPI,
    "mpi": Family.MPI,
}
"""By the name of an engine whose image is the user's own."""


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    wants: str
    id: str = ""
    version: str = ""
    family: Family = Family.PLAIN
    v1: bool = False
    run_user: str = ""
    search: bool = False
    """Whether its jobs may search hyper-parameters."""
    ascend: bool = False

    def brief(self) -> dict[str, Any]:
        """As a job and an algorithm show it."""
        return {"engine_id": self.id, "engine_name": self.name, "engine_version": self.version}

    def listed(self) -> dict[str, Any]:
        """As `training-job-engines` shows it. There are no images behind the engines here."""
        tags = {"tags": [{"key": "auto_search", "value": "True"}]} if self.search else {}
        return {
            **self.brief(),
            "v1_compatible": self.v1,
            "run_user": self.run_user,
            "image_info": {"cpu_image_url": "", "gpu_image_url": "", "image_version": self.version},
            **tags,
        }


class Flavor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    id: str = ""
    cores: int = 0
    """0: no limit."""
    memory: int = 0
    disk: int = 0
    gpus: int = 0
    npus: int = 0
    """Ascend cards, which no machine of ours has: they are in the catalogue to be refused by name."""
    product: str = ""
    card_memory: str = ""
    max_num: int = 1
    billing: str = ""
    policy: str = "regular"
    pool: bool = False
    """Of dedicated pools; all others are of the public one."""

    @property
    def kind(self) -> str:
        return "Ascend" if self.npus else "GPU" if self.gpus else "CPU"

    @property
    def resources(self) -> Resources:
        return Resources(cpu=self.cores, memory=self.memory * GB, gpus=self.gpus)

    def detail(self) -> dict[str, Any]:
        """What a job's `flavor_detail` is."""
        return {
            "flavor_type": self.kind,
            "billing": {"code": self.billing or self.id, "unit_num": 1},
            "flavor_info": self._info(),
        }

    def listed(self) -> dict[str, Any]:
        """As `training-job-flavors` and a task's `task_resource` show it."""
        return {
            "flavor_id": self.id,
            "flavor_name": self.name,
            "max_num": self.max_num,
            **self.detail(),
            "attributes": {},
        }

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"max_num": self.max_num}
        if self.cores:
            info["cpu"] = {"arch": "x86", "core_num": self.cores}
        if self.gpus:
            info["gpu"] = {"unit_num": self.gpus, "product_name": self.product, "memory": self.card_memory}
        if self.npus:
            info["npu"] = {"unit_num": self.npus, "product_name": self.product, "memory": self.card_memory}
        if self.memory:
            info["memory"] = {"size": self.memory, "unit": "GB"}
        if self.disk:
            info["disk"] = {"size": self.disk, "unit": "GB"}
        return info


@lru_cache(maxsize=1)
def engines() -> dict[str, Engine]:
    table = msgspec.convert(_load("engines.toml"), dict[str, Engine])
    return {
        name: msgspec.structs.replace(engine, id=name, version=engine.version or name)
        for name, engine in table.items()
    }


@lru_cache(maxsize=1)
def flavors() -> dict[str, Flavor]:
    table = msgspec.convert(_load("flavors.toml"), dict[str, Flavor])
    return {name: msgspec.structs.replace(flavor, id=name) for name, flavor in table.items()}


def by_name(name: str, version: str) -> Engine | None:
    """Names are compared without regard to case: the pages spell them both ways."""
    for engine in engines().values():
        if engine.name.lower() == name.lower() and version in (engine.version, engine.id):
            return engine
    return None


def _load(name: str) -> dict[str, object]:
    return tomllib.loads(resources.files("turnout.dialects.modelarts").joinpath(name).read_text())
