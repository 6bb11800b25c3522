"""The engines and flavors of engines.toml and flavors.toml, and how answers show them."""

import tomllib
from functools import lru_cache
from importlib import resources
from typing import Any

import msgspec

from turnout.dialects.modelarts.catalogue import host
from turnout.dialects.modelarts.program.script import EngineFamily
from turnout.job import Resources

GB = 1 << 30

FAMILIES: dict[str, EngineFamily] = {
    "pytorch": EngineFamily.PYTORCH,
    "tensorflow": EngineFamily.TENSORFLOW,
    "horovod": EngineFamily.MPI,
    "mpi": EngineFamily.MPI,
}
"""The family of a custom image, by the beginning of its engine_name in lower case."""


class CatalogueEngine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    wants: str
    id: str = ""
    version: str = ""
    family: EngineFamily = EngineFamily.PLAIN
    v1: bool = False
    run_user: str = ""
    search: bool = False
    """Whether its jobs can be hyper-parameter searches."""
    ascend: bool = False

    def brief(self) -> dict[str, Any]:
        """The engine as jobs and algorithms show it."""
        return {"engine_id": self.id, "engine_name": self.name, "engine_version": self.version}

    def listed(self) -> dict[str, Any]:
        """The engine as `training-job-engines` shows it. Engines have no images here."""
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
    """0 means no limit."""
    memory: int = 0
    disk: int = 0
    gpus: int = 0
    npus: int = 0
    """Ascend NPUs, which this service does not support. The flavors are listed so that errors can say so."""
    product: str = ""
    card_memory: str = ""
    max_num: int = 1
    billing: str = ""
    policy: str = "regular"
    pool: bool = False
    """For dedicated pools. All others are for the public pool."""

    @property
    def kind(self) -> str:
        return "Ascend" if self.npus else "GPU" if self.gpus else "CPU"

    @property
    def resources(self) -> Resources:
        return Resources.of(cores=self.cores, memory=self.memory * GB, gpus=self.gpus, disk=self.disk * GB)

    def detail(self) -> dict[str, Any]:
        """`flavor_detail` of a job. In its table the size of the disk is text."""
        detail = self._detail()
        if "disk" in detail["flavor_info"]:
            detail["flavor_info"]["disk"]["size"] = str(self.disk)
        return detail

    def listed(self) -> dict[str, Any]:
        """The flavor as `training-job-flavors` and a task's `task_resource` show it."""
        return {
            "flavor_id": self.id,
            "flavor_name": self.name,
            "max_num": self.max_num,
            **self._detail(),
            "attributes": {},
        }

    def _detail(self) -> dict[str, Any]:
        return {
            "flavor_type": self.kind,
            "billing": {"code": self.billing or self.id, "unit_num": 1},
            "flavor_info": self._info(),
        }

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"max_num": self.max_num}
        if self.cores:
            info["cpu"] = {"arch": host.cpu_arch(), "core_num": self.cores}
        if self.gpus:
            card = host.gpu() or host.Gpu(self.product, self.card_memory)
            info["gpu"] = {"unit_num": self.gpus, "product_name": card.name, "memory": card.memory}
        if self.npus:
            # The number of NPUs is text in the reference's tables, that of GPUs is not.
            info["npu"] = {
                "unit_num": str(self.npus),
                "product_name": self.product,
                "memory": self.card_memory,
            }
        if self.memory:
            info["memory"] = {"size": self.memory, "unit": "GB"}
        if self.disk:
            info["disk"] = {"size": self.disk, "unit": "GB"}
        return info


@lru_cache(maxsize=1)
def engines() -> dict[str, CatalogueEngine]:
    table = msgspec.convert(_load("engines.toml"), dict[str, CatalogueEngine])
    return {
        name: msgspec.structs.replace(engine, id=name, version=engine.version or name)
        for name, engine in table.items()
    }


@lru_cache(maxsize=1)
def flavors() -> dict[str, Flavor]:
    table = msgspec.convert(_load("flavors.toml"), dict[str, Flavor])
    return {name: msgspec.structs.replace(flavor, id=name) for name, flavor in table.items()}


def by_name(name: str, version: str) -> CatalogueEngine | None:
    """Ignores the case of the name, because the reference uses both."""
    for engine in engines().values():
        if engine.name.lower() == name.lower() and version in (engine.version, engine.id):
            return engine
    return None


def is_version(engine_id: str, version: str | None) -> bool:
    """Whether `version` names that engine's version. Clients may send the engine's id as its version."""
    engine = engines().get(engine_id)
    return engine is not None and version in (engine.version, engine.id)


def _load(name: str) -> dict[str, object]:
    return tomllib.loads(resources.files("turnout.dialects.modelarts.catalogue").joinpath(name).read_text())
