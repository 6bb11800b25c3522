"""Google's message classes for the supported services, imported without the rest of their packages.

Importing those as usual loads every service of Vertex: 70 MB and 3 seconds for each version of the API, where the
messages of JobService take 4 MB and a tenth of a second.
"""

import contextlib
import importlib
import importlib.machinery
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from google.protobuf.message import Message

VERSIONS = ("v1", "v1beta1")
_MODULES = (
    "job_service", "custom_job", "hyperparameter_tuning_job",
    "pipeline_service", "training_pipeline",
    "model_service", "model",
    "metadata_service", "metadata_store", "context", "execution", "artifact", "lineage_subgraph",
    "tensorboard_service", "tensorboard", "tensorboard_experiment", "tensorboard_run", "tensorboard_time_series",
    "persistent_resource_service", "persistent_resource",
    "operation",
)  # fmt: skip
"""The last has the messages inside operations, which can be decoded only if they are imported."""


class MessageClasses:
    """The classes of one version, by their names."""

    def __init__(self, version: str) -> None:
        package = f"google.cloud.aiplatform_{version}"
        with _without_init(package), _without_init(f"{package}.types"):
            self._modules = [importlib.import_module(f"{package}.types.{name}") for name in _MODULES]

    def __getitem__(self, name: str) -> type[Message]:
        found: Any = next(getattr(module, name) for module in self._modules if hasattr(module, name))
        return found.pb()


@contextlib.contextmanager
def _without_init(package: str) -> Iterator[None]:
    """Lets modules of a package be imported without running its `__init__`, unless it is imported already."""
    if package in sys.modules:
        yield
        return
    parent = importlib.import_module(package.rpartition(".")[0])
    spec = importlib.machinery.PathFinder.find_spec(package, parent.__path__)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"{package} is not installed", name=package)
    empty_package = ModuleType(package)
    empty_package.__path__ = list(spec.submodule_search_locations)
    sys.modules[package] = empty_package
    try:
        yield
    finally:
        del sys.modules[package]
