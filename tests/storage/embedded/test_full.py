"""The buckets' disk is full: what was there stays, what comes is refused, and nothing is left half-written."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnout.errors import Unavailable
from turnout.storage.embedded.buckets import Buckets
from turnout.storage.embedded.objects import EmbeddedStore

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")

MEGABYTE = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", path], check=True)
    yield path
    subprocess.run(["umount", path], check=True)


def test_an_object_that_does_not_fit(small_disk: Path):
    objects = EmbeddedStore(Buckets(small_disk / "buckets", None))
    first = objects.writer("b", "a", "p")
    first.write(b"before")
    first.commit()
    second = objects.writer("b", "a", "p")
    with pytest.raises(Unavailable, match="'a' cannot be written: the disk is full"):
        second.write(bytes(8 * MEGABYTE))
    second.abort()
    assert (small_disk / "buckets" / "b" / "a").read_bytes() == b"before"
    assert list(objects.uploads().iterdir()) == []
    third = objects.writer("b", "c", "p")
    third.write(bytes(MEGABYTE))
    assert third.commit().size == MEGABYTE
