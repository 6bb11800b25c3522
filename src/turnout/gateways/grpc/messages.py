"""Google's message classes for jobs, without the rest of the packages that they come in.

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


class Messages:
    """The classes of one version, by their names."""

    def __init__(self, version: str) -> None:
        package = f"google.cloud.aiplatform_{version}"
        with _hollow(package), _hollow(f"{package}.types"):
            # The last is for what operations carry, which must be known to be read.
            self._modules = [
                importlib.import_module(f"{package}.types.{name}")
                for name in ("job_service", "custom_job", "hyperparameter_tuning_job", "operation")
            ]

    def __getitem__(self, name: str) -> type[Message]:
        found: Any = next(getattr(module, name) for module in self._modules if hasattr(module, name))
        return found.pb()


@contextlib.contextmanager
def _hollow(package: str) -> Iterator[None]:
    """Lets modules of a package be imported without what its `__init__` would import, unless that was done already."""
    if package in sys.modules:
        yield
        return
    parent = importlib.import_module(package.rpartition(".")[0])
    spec = importlib.machinery.PathFinder.find_spec(package, parent.__path__)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"{package} is not installed", name=package)
    hollow = ModuleType(package)
    hollow.__path__ = list(spec.submodule_search_locations)
    sys.modules[package] = hollow
    try:
        yield
    finally:
        del sys.modules[package]
