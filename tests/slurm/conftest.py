from collections.abc import Iterator

import pytest

from tests.slurm.daemons import Slurm


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """Four nodes, shared by all tests. Each test cancels what it started and repairs what it broke."""
    with Slurm() as one:
        yield one
