import os
from collections.abc import Iterator

import pytest

from tests.kubernetes.build import Unbuildable, is_built
from tests.kubernetes.daemons import Kubernetes

WANTED = "TURNOUT_TEST_KUBERNETES"


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Kubernetes]:
    """One node, shared by all tests. Each test repairs what it broke."""
    if not is_built() and not os.environ.get(WANTED):
        pytest.skip(
            f"KUBERNETES IS NOT TESTED: it takes minutes to build; `make test-slow KUBERNETES=1`, or {WANTED}=1"
        )
    try:
        one = Kubernetes()
    except Unbuildable as error:
        pytest.skip(f"KUBERNETES IS NOT TESTED: it cannot be built here: {error}")
    with one:
        yield one
    assert one.traces() == []
