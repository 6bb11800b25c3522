import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.images import registry
from turnout.child_processes.bootstrap import Identity
from turnout.child_processes.nobody import nobody
from turnout.images import ImageCache
from turnout.limits import Limits
from turnout.registries import Registry

OWNER = Identity(40_001, 40_001)

OpenCache = Callable[..., AbstractAsyncContextManager[ImageCache]]


@pytest.fixture
def data() -> Iterator[Path]:
    """A directory that other users may pass, as the data directory is."""
    directory = Path(tempfile.mkdtemp(prefix="turnout-images-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def open_cache(data: Path) -> OpenCache:
    """Opens a cache in `data/images`, with the users of a service that runs as root if the tests do."""

    @asynccontextmanager
    async def opened(
        registries: dict[str, Registry] | None = None, limits: Limits | None = None, **others: Any
    ) -> AsyncIterator[ImageCache]:
        users = {"owner": OWNER, "fetcher": nobody()} if os.geteuid() == 0 else {}
        cache = ImageCache(data / "images", registries or {}, limits or Limits(), **users | others)
        await cache.open()
        try:
            yield cache
        finally:
            await cache.close()

    return opened


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Registry]:
    with registry.running(tmp_path_factory.mktemp("hub") / "registry") as started:
        yield started


@pytest.fixture(scope="module")
def private_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Registry]:
    with registry.running(tmp_path_factory.mktemp("private") / "registry", password=True) as started:
        yield started
