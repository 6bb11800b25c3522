"""How much is written at a time follows what it costs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from turnout.runner.stage import portions
from turnout.runner.stage.portions import LARGE, SMALL, Portions, write_all


def taken(choice: Portions, cost: Callable[[int], float], times: int) -> list[int]:
    found = []
    for _ in range(times):
        portion = choice.next()
        choice.tell(portion, cost(portion))
        found.append(portion)
    return found


def test_the_cheaper_one_is_taken() -> None:
    found = taken(Portions(), {LARGE: 1.0, SMALL: 2.0}.__getitem__, 1000)
    assert found.count(SMALL) < 50
    found = taken(Portions(), {LARGE: 2.0, SMALL: 1.0}.__getitem__, 1000)
    assert found.count(LARGE) < 50


def test_it_is_noticed_when_that_changes() -> None:
    choice = Portions()
    for cheap in (LARGE, SMALL, LARGE, SMALL):
        found = taken(choice, lambda portion, cheap=cheap: 1.0 if portion == cheap else 3.0, 500)
        assert found[-100:].count(cheap) > 90


@pytest.mark.parametrize("size", [0, 1, SMALL, SMALL + 1, LARGE, 3 * LARGE + 7])
@pytest.mark.parametrize("portion", [SMALL, LARGE])
def test_everything_is_written_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, portion: int
) -> None:
    monkeypatch.setattr(portions._portions, "next", lambda: portion)
    data, path = os.urandom(size), tmp_path / "file"
    path.write_bytes(b"before")
    with path.open("r+b") as file:
        write_all(file.fileno(), data, 6)
    assert path.read_bytes() == b"before" + data
