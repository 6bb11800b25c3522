from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.stager.stager_process import Stager
from tests.stores import gcs, s3, xml

__all__ = ["gcs", "s3", "xml"]


@pytest.fixture
def stager() -> Iterator[Stager]:
    with Stager() as one:
        yield one


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory for incoming files."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place"
