import os
from collections.abc import Iterator

import pytest

from tests.running import IMAGES, Service, running

# The tests start processes while gRPC's client runs threads, and its fork handlers can crash then.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

LONG = ("tests/whole/", "tests/engines/", "tests/gateways/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, so that no worker is left alone with one of them at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """`async def` tests run on the loop that the service runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A running service, shared by the tests of a module."""
    with running(IMAGES) as started:
        yield started.start()
