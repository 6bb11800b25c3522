"""One service for all of ModelArts' tests; each test names its jobs for itself."""

from collections.abc import Iterator

import pytest

from tests.dialects.modelarts.driving import Cloud
from tests.running import Service, running

CONFIG = """
[engines.local]
gpus = 1

[pools.poolfaf38d76]

[images]
"xxxxxxxx/fastseq:1.2" = "fastseq"
"tests/anything:1" = "anything"
"""


@pytest.fixture(scope="session", autouse=True)
def sdk_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The SDK writes an application's id into the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    with running(CONFIG) as one:
        yield one.start()


@pytest.fixture(scope="session")
def cloud(service: Service) -> Cloud:
    return Cloud(service)
