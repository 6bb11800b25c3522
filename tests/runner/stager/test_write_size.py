"""The size of writes adapts to their cost."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from turnout.runner.stager import write_size
from turnout.runner.stager.write_size import LARGE, SMALL, WriteSize, write_all


def taken(choice: WriteSize, cost: Callable[[int], float], times: int) -> list[int]:
    found = []
    for _ in range(times):
        portion = choice.next()
        choice.record(portion, cost(portion))
        found.append(portion)
    return found


def test_the_cheaper_size_is_chosen() -> None:
    found = taken(WriteSize(), {LARGE: 1.0, SMALL: 2.0}.__getitem__, 1000)
    assert found.count(SMALL) < 50
    found = taken(WriteSize(), {LARGE: 2.0, SMALL: 1.0}.__getitem__, 1000)
    assert found.count(LARGE) < 50


def test_the_choice_follows_a_change_of_cost() -> None:
    choice = WriteSize()
    for cheap in (LARGE, SMALL, LARGE, SMALL):
        found = taken(choice, lambda portion, cheap=cheap: 1.0 if portion == cheap else 3.0, 500)
        assert found[-100:].count(cheap) > 90


@pytest.mark.parametrize("size", [0, 1, SMALL, SMALL + 1, LARGE, 3 * LARGE + 7])
@pytest.mark.parametrize("portion", [SMALL, LARGE])
def test_all_data_is_written_at_its_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, portion: int
) -> None:
    monkeypatch.setattr(write_size._write_size, "next", lambda: portion)
    data, path = os.urandom(size), tmp_path / "file"
    path.write_bytes(b"before")
    with path.open("r+b") as file:
        write_all(file.fileno(), data, 6)
    assert path.read_bytes() == b"before" + data
