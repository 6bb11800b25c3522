from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.stage.driving import Mover
from tests.stores import gcs, s3, xml

__all__ = ["gcs", "s3", "xml"]


@pytest.fixture
def mover() -> Iterator[Mover]:
    with Mover() as one:
        yield one


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory for data to come into."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place"
