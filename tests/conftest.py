import os
from collections.abc import Iterator

import pytest

from tests.running import Service, running

# The tests start processes while gRPC's client runs threads, and its fork handlers can crash then.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """`async def` tests run on the loop that the service runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A running service with its default settings, shared by the tests of a module."""
    with running() as started:
        yield started.start()
