import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sklearn.gaussian_process  # noqa: F401 - what is to be limited must be loaded
from threadpoolctl import threadpool_limits

from tests.search.harness import Harness


@pytest.fixture
def harness() -> Iterator[Harness]:
    with tempfile.TemporaryDirectory(prefix="turnout-", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)
        yield Harness(Path(name))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Search workers compute on one thread, too."""
    with threadpool_limits(1):
        yield
