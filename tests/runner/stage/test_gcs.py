"""Data comes in from a GCS server. Only in: fake-gcs-server lacks the PUT of the XML API, by which obstore writes."""

import os
from pathlib import Path

from tests.runner.stage.driving import Mover, files
from tests.stores import Gcs


def test_objects_become_files(gcs: Gcs, mover: Mover, place: Path) -> None:
    big = os.urandom(20 << 20)
    gcs.make_bucket("inputs")
    gcs.put("inputs", "data/a", b"1")
    gcs.put("inputs", "data/sub/with space+ü", b"2")
    gcs.put("inputs", "data/big", big)
    gcs.put("inputs", "data/dir/", b"")
    item = {"backing": gcs.backing("inputs"), "prefix": "data/", "to": str(place)}
    mover.move("in", item | {"state": str(place.parent / "state")})
    assert files(place) == {"a": b"1", "sub/with space+ü": b"2", "big": big}
    assert (place / "dir").is_dir(), "an empty object with a slash at its end marks a directory"
    assert mover.move("in", item | {"state": str(place.parent / "state")})["files"] == 0


def test_no_such_object(gcs: Gcs, mover: Mover, place: Path) -> None:
    gcs.make_bucket("empty")
    said = mover.fail("in", {"backing": gcs.backing("empty"), "prefix": "none.txt", "to": str(place)})
    assert said == "gs://empty/none.txt: there is nothing"
