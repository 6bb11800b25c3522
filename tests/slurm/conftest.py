import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.daemons import Slurm
from tests.slurm.harness import Bench, bench


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """Four nodes, shared by all tests. Each test cancels what it started and repairs what it broke."""
    with Slurm() as one:
        yield one


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that programs see too: their /tmp is their own."""
    with tempfile.TemporaryDirectory(prefix="turnout-faults-", dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def lab(slurm: Slurm) -> Iterator[Bench]:
    with bench(slurm) as one:
        yield one
