"""One service for all of TI-A's tests; each test names its jobs for itself."""

from collections.abc import Iterator

import pytest

from tests.running import Service, running

CONFIG = """
[engines.local]
gpus = 7

[clusters.cls-rgaisoe4]
engine = "local"
"""


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    with running(CONFIG) as one:
        one.start()
        one.put("cos://mybucket-1256385809/mnist/mnist_saved_model.py")
        yield one
