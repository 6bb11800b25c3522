import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray.daemons import Ray
from tests.running import ROOT

_installing: list[subprocess.Popen[bytes]] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Downloads Ray while other tests run."""
    here = Path(__file__).parent
    ours = [
        item
        for item in session.items
        if item.path.is_relative_to(here) and "ray" in getattr(item, "fixturenames", ())
    ]
    if ours and not session.config.option.collectonly:
        command = ["nice", sys.executable, "-m", "tests.ray.installation"]
        _installing.append(subprocess.Popen(command, cwd=ROOT))


def pytest_sessionfinish() -> None:
    for one in _installing:
        one.terminate()
        one.wait()


@pytest.fixture(scope="session")
def ray() -> Iterator[Ray]:
    """A head and two nodes, shared by all tests. Each test ends what it started and repairs what it broke."""
    with Ray() as one:
        yield one
