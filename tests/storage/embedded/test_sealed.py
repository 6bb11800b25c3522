"""Objects that are sealed on disk, and to everyone who may read them as any other."""

import base64
import os
from pathlib import Path

import google_crc32c
import pytest

from turnout.errors import NotFound
from turnout.storage import EmbeddedPath, KeyGone, Storage
from turnout.storage.embedded.objects import EmbeddedStore
from turnout.vault import KeyRing
from turnout.vault.chunks import CHUNK

NAME = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
DATA = b"marker-4711 " * 20_000


class Place:
    def __init__(self, directory: Path) -> None:
        self.key = directory / "key"
        self.key.write_bytes(b"\1" * 32)
        self.ring = KeyRing({NAME: str(self.key)})
        self.buckets = directory / "buckets"
        self.storage = Storage(self.buckets, [], directory, None, ring=self.ring)
        self.objects: EmbeddedStore = self.storage.embedded

    def write(self, key: str, data: bytes = DATA, bucket: str = "b") -> None:
        writer = self.objects.writer(bucket, key, "p", "text/plain", seal_with=self.ring.new(NAME))
        for at in range(0, len(data), 100_000):
            writer.write(data[at : at + 100_000])
        writer.commit()

    def write_plain(self, key: str, data: bytes, bucket: str = "b") -> None:
        writer = self.objects.writer(bucket, key, "p")
        writer.write(data)
        writer.commit()

    def read(self, key: str, count: int = 1 << 30, offset: int = 0, bucket: str = "b") -> bytes:
        file, info = self.objects.open(bucket, key, "p")
        try:
            return self.objects.pread(file, info)(count, offset)
        finally:
            os.close(file)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_size_sums_and_bytes_are_the_objects_own(place: Place):
    place.write("out/model")
    info = place.objects.info("b", "out/model", "p")
    assert (info.size, info.content_type, info.sealed) == (len(DATA), "text/plain", True)
    assert info.crc32c is not None
    crc = google_crc32c.value(DATA)
    assert info == place.objects.list("b", "p").objects[0]
    assert info.crc32c == base64.b64encode(crc.to_bytes(4, "big")).decode()
    assert place.read("out/model") == DATA
    assert place.read("out/model", 10, CHUNK - 5) == DATA[CHUNK - 5 : CHUNK + 5]
    assert not any(b"marker" in path.read_bytes() for path in place.buckets.rglob("*") if path.is_file())


def test_a_copy_is_sealed_too_and_takes_no_key(place: Place):
    place.write("a")
    place.key.unlink()
    place.objects.copy("b", "a", "c", "copy", "p")
    place.key.write_bytes(b"\1" * 32)
    copied, original = place.objects.info("c", "copy", "p"), place.objects.info("b", "a", "p")
    assert (copied.size, copied.etag, copied.crc32c) == (original.size, original.etag, original.crc32c)
    assert copied.sealed
    assert place.read("copy", bucket="c") == DATA
    assert place.objects.holds_sealed("c", "", "p")


def test_without_the_key_all_but_its_bytes_can_be_had(place: Place):
    place.write("a")
    place.write_plain("b", b"plain")
    place.key.unlink()
    assert [info.size for info in place.objects.list("b", "p").objects] == [len(DATA), 5]
    with pytest.raises(KeyGone, match=NAME):
        place.read("a")
    assert place.read("b") == b"plain"
    place.objects.delete("b", "a", "p")
    with pytest.raises(NotFound):
        place.objects.info("b", "a", "p")


def test_an_empty_object(place: Place):
    place.write("empty", b"")
    assert place.objects.info("b", "empty", "p").size == 0
    assert place.read("empty") == b""


def test_attributes_that_were_lost_do_not_make_it_unreadable(place: Place):
    place.write("a")
    os.removexattr(place.buckets / "b" / "a", "user.turnout.object")
    assert place.objects.info("b", "a", "p").size == len(DATA)
    assert place.read("a") == DATA


def test_where_sealed_objects_are(place: Place):
    place.write_plain("in/x", b"x")
    assert not place.objects.holds_sealed("b", "", "p")
    place.write("out/y")
    assert place.objects.holds_sealed("b", "", "p")
    assert place.objects.holds_sealed("b", "out/", "p")
    assert not place.objects.holds_sealed("b", "in/", "p")
    place.objects.delete("b", "out/y", "p")
    assert not place.objects.holds_sealed("b", "", "p")


def test_a_place_object_by_object(place: Place):
    place.write("out/a/b")
    place.write_plain("out/c", b"c")
    place.write_plain("other", b"not this")
    out = place.storage.locate("gs://b/out", "p")
    assert isinstance(out, EmbeddedPath)
    assert out.holds_sealed()
    assert {name: info.size for name, info in out.objects()} == {"a/b": len(DATA), "c": 1}
    with out.open("a/b") as (pread, _):
        assert pread(11, 0) == DATA[:11]
    single = place.storage.locate("gs://b/out/c", "p")
    assert isinstance(single, EmbeddedPath)
    assert [name for name, _ in single.objects()] == ["c"]
    with single.open("c") as (pread, _):
        assert pread(10, 0) == b"c"


def test_a_place_without_anything(place: Place):
    place.write_plain("x", b"x")
    none = place.storage.locate("gs://b/none", "p")
    assert isinstance(none, EmbeddedPath)
    with pytest.raises(NotFound, match="'none/'"):
        list(none.objects())
    assert not isinstance(place.storage.locate("file:///tmp", "p"), EmbeddedPath)
