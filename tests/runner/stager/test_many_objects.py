"""Upload and download of many files, and of a very big one."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.runner.stager.stager_process import Stager, files, sha
from tests.stores import S3, Xml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MANY = 5000
GIGABYTES = 2
LIMIT = 150


@pytest.fixture(params=["s3", "gs"])
def backing(request: pytest.FixtureRequest) -> dict[str, Any]:
    store: S3 | Xml = request.getfixturevalue("s3" if request.param == "s3" else "xml")
    return store.backing()


def test_many_small_files(backing: dict[str, Any], stager: Stager, place: Path, tmp_path: Path) -> None:
    for number in range(MANY):
        directory = place / f"{number % 50}"
        directory.mkdir(exist_ok=True)
        (directory / f"{number}").write_bytes(os.urandom(number % 3000))
    assert stager.move("out", {"backing": backing, "prefix": "many/", "from": str(place)})["files"] == MANY
    (tmp_path / "back").mkdir()
    item = {
        "backing": backing,
        "prefix": "many/",
        "to": str(tmp_path / "back"),
        "state": str(tmp_path / "state"),
    }
    assert stager.move("in", item)["files"] == MANY
    assert files(tmp_path / "back") == files(place)
    assert stager.move("in", item)["files"] == 0
    assert stager.most_memory() < LIMIT


def test_a_very_big_file(backing: dict[str, Any], stager: Stager, place: Path, tmp_path: Path) -> None:
    with (place / "big").open("wb") as file:
        for _ in range(GIGABYTES * 64):
            file.write(os.urandom(16 << 20))
    stager.move("out", {"backing": backing, "from": str(place)})
    assert stager.most_memory() < LIMIT
    (tmp_path / "back").mkdir()
    stager.move("in", {"backing": backing, "to": str(tmp_path / "back")})
    assert stager.most_memory() < LIMIT
    assert sha(tmp_path / "back" / "big") == sha(place / "big")
    assert stager.progress[-1]["bytes"] <= stager.progress[-1]["of_bytes"] == GIGABYTES << 30
