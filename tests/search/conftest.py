import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sklearn.gaussian_process  # noqa: F401 - what is to be limited must be loaded
from threadpoolctl import threadpool_limits

from tests.search.stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="turnout-", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)
        yield Stage(Path(name))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """As in the process that holds the libraries for a search."""
    with threadpool_limits(1):
        yield
