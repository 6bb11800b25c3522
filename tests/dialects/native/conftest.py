from collections.abc import Iterator

import pytest

from tests.dialects.native.driving import Client
from tests.running import IMAGES, Service, running


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A service with one simulated GPU, so that a second job that wants it waits."""
    with running("[engines.local]\ngpus = 1\n" + IMAGES) as started:
        yield started.start()


@pytest.fixture(scope="module")
def client(service: Service) -> Client:
    """With the root key."""
    return Client(service)
