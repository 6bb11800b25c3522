from collections.abc import Iterator

import pytest
import sklearn.gaussian_process  # noqa: F401 - what is to be limited must be loaded
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """As in the process that holds the libraries for a search."""
    with threadpool_limits(1):
        yield
