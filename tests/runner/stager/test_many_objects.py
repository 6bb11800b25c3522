"""Many files, and a very big one, there and back."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.runner.stage.driving import Mover, files, sha
from tests.stores import S3, Xml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MANY = 5000
GIGABYTES = 2
LIMIT = 150


@pytest.fixture(params=["s3", "gs"])
def backing(request: pytest.FixtureRequest) -> dict[str, Any]:
    store: S3 | Xml = request.getfixturevalue("s3" if request.param == "s3" else "xml")
    return store.backing()


def test_many_small_files(backing: dict[str, Any], mover: Mover, place: Path, tmp_path: Path) -> None:
    for number in range(MANY):
        directory = place / f"{number % 50}"
        directory.mkdir(exist_ok=True)
        (directory / f"{number}").write_bytes(os.urandom(number % 3000))
    assert mover.move("out", {"backing": backing, "prefix": "many/", "from": str(place)})["files"] == MANY
    (tmp_path / "back").mkdir()
    item = {
        "backing": backing,
        "prefix": "many/",
        "to": str(tmp_path / "back"),
        "state": str(tmp_path / "state"),
    }
    assert mover.move("in", item)["files"] == MANY
    assert files(tmp_path / "back") == files(place)
    assert mover.move("in", item)["files"] == 0
    assert mover.most_memory() < LIMIT


def test_a_very_big_file(backing: dict[str, Any], mover: Mover, place: Path, tmp_path: Path) -> None:
    with (place / "big").open("wb") as file:
        for _ in range(GIGABYTES * 64):
            file.write(os.urandom(16 << 20))
    mover.move("out", {"backing": backing, "from": str(place)})
    assert mover.most_memory() < LIMIT
    (tmp_path / "back").mkdir()
    mover.move("in", {"backing": backing, "to": str(tmp_path / "back")})
    assert mover.most_memory() < LIMIT
    assert sha(tmp_path / "back" / "big") == sha(place / "big")
    assert mover.progress[-1]["bytes"] <= mover.progress[-1]["of_bytes"] == GIGABYTES << 30
