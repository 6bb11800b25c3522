"""One service for all of Vertex' tests that need one; each test knows its jobs by their names."""

from collections.abc import Iterator

import pytest

from tests.dialects.vertex.driving import Cloud
from tests.running import Service, running

CONFIG = """
[engines.local]
gpus = 1

[images]
"gcr.io/tests/own-entry-point" = "own"
"python:*" = "plain"

[runtimes.plain]

[runtimes.own]
entrypoint = ["/bin/sh", "-c", "echo entry point: $0 $@"]
cmd = ["default"]
"""


@pytest.fixture(scope="session", autouse=True)
def no_proxy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    with running(CONFIG) as one:
        yield one.start()


@pytest.fixture(scope="session")
def cloud(service: Service) -> Cloud:
    return Cloud(service)
