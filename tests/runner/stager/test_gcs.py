"""Transfers from a GCS server, and to one with the XML API, which fake-gcs-server lacks."""

import os
from pathlib import Path

from tests.runner.stager.stager_process import Stager, content, files, keys
from tests.stores import Gcs, Xml


def test_objects_become_files(gcs: Gcs, stager: Stager, place: Path) -> None:
    big = os.urandom(20 << 20)
    gcs.make_bucket("inputs")
    gcs.put("inputs", "data/a", b"1")
    gcs.put("inputs", "data/sub/with space+ü", b"2")
    gcs.put("inputs", "data/big", big)
    gcs.put("inputs", "data/dir/", b"")
    item = {"backing": gcs.backing("inputs"), "prefix": "data/", "to": str(place)}
    stager.move("in", item | {"state": str(place.parent / "state")})
    assert files(place) == {"a": b"1", "sub/with space+ü": b"2", "big": big}
    assert (place / "dir").is_dir(), "an empty object with a slash at its end marks a directory"
    assert stager.move("in", item | {"state": str(place.parent / "state")})["files"] == 0


def test_no_such_object(gcs: Gcs, stager: Stager, place: Path) -> None:
    gcs.make_bucket("empty")
    said = stager.fail("in", {"backing": gcs.backing("empty"), "prefix": "none.txt", "to": str(place)})
    assert said == "gs://empty/none.txt: there is no object"


def test_files_become_objects_and_come_back(xml: Xml, stager: Stager, place: Path, tmp_path: Path) -> None:
    backing, state = xml.backing(), str(tmp_path / "state")
    (place / "sub").mkdir()
    (place / "sub" / "with space+ü").write_bytes(b"1")
    (place / "empty").touch()
    (place / "big").write_bytes(os.urandom(20 << 20))
    item = {"backing": backing, "prefix": "out/", "from": str(place), "state": state}
    assert stager.move("out", item)["files"] == 3
    assert keys(backing) == {"out/sub/with space+ü", "out/empty", "out/big"}
    assert stager.move("out", item)["files"] == 0
    (place / "empty").write_bytes(b"no more")
    assert stager.move("out", item)["files"] == 1
    assert content(backing, "out/empty") == b"no more"
    (tmp_path / "back").mkdir()
    stager.move("in", {"backing": backing, "prefix": "out/", "to": str(tmp_path / "back")})
    assert files(tmp_path / "back") == files(place)
