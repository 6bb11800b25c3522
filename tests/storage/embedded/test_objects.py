"""Embedded buckets as an object store, on real files."""

import base64
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.running import python_path, reachable_directory
from tests.storage.binding import bind
from turnout.errors import AlreadyExists, Denied, Invalid, NotFound, WrongState
from turnout.storage import Storage
from turnout.storage.embedded import checksums, listing
from turnout.storage.embedded.buckets import Buckets
from turnout.storage.embedded.objects import EmbeddedStore, Info
from turnout.storage.owners import Owners


class Place:
    def __init__(self, directory: Path) -> None:
        self.directory = directory / "buckets"
        self.objects = EmbeddedStore(Buckets(self.directory, None))

    def put(self, key: str, data: bytes = b"x", bucket: str = "b", project: str = "p", **more) -> Info:
        writer = self.objects.writer(bucket, key, project, **more)
        try:
            writer.write(data)
            return writer.commit()
        finally:
            writer.abort()

    def get(self, key: str, bucket: str = "b", project: str = "p") -> bytes:
        file, _ = self.objects.open(bucket, key, project)
        with os.fdopen(file, "rb") as opened:
            return opened.read()

    def keys(self, prefix: str = "", delimiter: str = "", after: str = "", limit: int = 1000) -> list[str]:
        page = self.objects.list("b", "p", prefix, delimiter, after, limit)
        return [one.key for one in page.objects]

    def leftovers(self) -> list[str]:
        return os.listdir(self.directory / ".uploads")


@pytest.fixture
def place() -> Iterator[Place]:
    with reachable_directory() as directory:
        yield Place(directory)


def test_what_is_put_is_there_with_its_sums_type_and_metadata(place: Place):
    info = place.put("a/b.txt", b"hello", content_type="text/plain", metadata={"colour": "red"})
    assert place.get("a/b.txt") == b"hello"
    assert info == place.objects.info("b", "a/b.txt", "p")
    assert info.md5 == info.etag == hashlib.md5(b"hello").hexdigest()
    assert info.crc32c == base64.b64encode(google_crc32c.value(b"hello").to_bytes(4, "big")).decode()
    assert (info.size, info.content_type, info.metadata) == (5, "text/plain", {"colour": "red"})
    assert (place.directory / "b/a/b.txt").read_bytes() == b"hello"


def test_a_file_that_a_job_wrote_has_no_md5_and_an_etag_that_is_none(place: Place):
    place.put("mine", b"first", metadata={"colour": "red"})
    (place.directory / "b/mine").write_bytes(b"other")
    info = place.objects.info("b", "mine", "p")
    assert (info.md5, info.crc32c, info.metadata) == (None, None, {})
    assert len(info.etag) == 34
    assert info.etag.endswith("-1")


def test_attributes_that_a_job_forged_cannot_break_a_header(place: Place):
    place.put("a", b"x", metadata={"k": "harmless"})
    path = place.directory / "b/a"
    kept = os.getxattr(path, "user.turnout.object")
    os.setxattr(path, "user.turnout.object", kept.replace(b"harmless", b"h\r\nEvil:1"))
    assert place.objects.info("b", "a", "p").metadata == {}
    os.setxattr(path, "user.turnout.object", b"\xff nonsense")
    assert place.objects.info("b", "a", "p").md5 is None


def test_a_put_replaces_the_object_as_a_whole(place: Place):
    first = place.put("a", b"first")
    reader, _ = place.objects.open("b", "a", "p")
    second = place.put("a", b"second, and longer")
    assert second.generation > first.generation
    with os.fdopen(reader, "rb") as opened:
        assert opened.read() == b"first"
    assert place.get("a") == b"second, and longer"


def test_nothing_is_there_before_commit_or_after_abort(place: Place):
    writer = place.objects.writer("b", "a", "p")
    writer.write(b"half")
    assert not place.objects.has_bucket("b", "p")
    writer.abort()
    assert place.leftovers() == []


def test_what_a_killed_writer_left_is_swept_and_what_one_writes_is_not(place: Place):
    program = (
        "import sys; from pathlib import Path; from turnout.storage.embedded.buckets import Buckets;"
        "from turnout.storage.embedded.objects import EmbeddedStore;"
        "w = EmbeddedStore(Buckets(Path(sys.argv[1]), None)).writer('b', 'a', 'p'); w.write(b'half' * 1000);"
        "print('ready', flush=True); sys.stdin.read()"
    )
    writer = place.objects.writer("b", "alive", "p")
    with subprocess.Popen(
        [sys.executable, "-c", program, place.directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": python_path()},
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == b"ready\n"
        place.objects.sweep()
        assert len(place.leftovers()) == 2
        other.kill()
    place.objects.sweep()
    assert len(place.leftovers()) == 1
    writer.write(b"whole")
    writer.commit()
    assert place.keys() == ["alive"]


def test_what_is_expected_is_checked(place: Place):
    info = place.put("a", b"1", expect="absent")
    with pytest.raises(AlreadyExists):
        place.put("a", b"2", expect="absent")
    with pytest.raises(WrongState):
        place.put("a", b"2", expect=info.generation - 1)
    newer = place.put("a", b"2", expect=info.generation)
    with pytest.raises(WrongState):
        place.objects.delete("b", "a", "p", expect=info.generation)
    place.objects.delete("b", "a", "p", expect=newer.generation)
    assert place.leftovers() == []


def test_of_many_who_want_to_be_first_one_is(place: Place):
    won: list[int] = []

    def try_it(number: int) -> None:
        try:
            place.put("a/b/c", b"%d" % number, expect="absent")
            won.append(number)
        except AlreadyExists:
            pass

    threads = [threading.Thread(target=try_it, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert place.get("a/b/c") == b"%d" % won[0]


def test_puts_and_deletes_in_one_directory_do_not_hurt_each_other(place: Place):
    failures: list[Exception] = []

    def in_and_out(name: str) -> None:
        try:
            for _ in range(30):
                place.put(f"deep/down/{name}")
                place.objects.delete("b", f"deep/down/{name}", "p")
        except Exception as error:  # noqa: BLE001  a thread's is lost otherwise
            failures.append(error)

    threads = [threading.Thread(target=in_and_out, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert os.listdir(place.directory / "b") == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/a",
        "a//b",
        "../a",
        "a/../b",
        "a/..",
        "./a",
        "a\nb",
        "a\x00",
        "x" * 256,
        "a/" * 101,
        "\udcff",
    ],
)
def test_keys_that_cannot_be(place: Place, key: str):
    place.put("a")
    with pytest.raises(Invalid):
        place.put(key)
    with pytest.raises(Invalid):
        place.objects.open("b", key, "p")
    with pytest.raises(Invalid):
        place.objects.delete("b", key, "p")
    assert place.keys() == ["a"]


@pytest.mark.parametrize("bucket", ["", ".uploads", ".owners", "..", "a/b", "A", "a..b"])
def test_buckets_that_cannot_be(place: Place, bucket: str):
    place.put("a")
    for attempt in (
        lambda: place.put("a", bucket=bucket),
        lambda: place.objects.make_bucket(bucket, "p"),
        lambda: place.objects.list(bucket, "p"),
        lambda: place.objects.info(bucket, "a", "p"),
    ):
        with pytest.raises(Invalid):
            attempt()


def test_an_object_and_a_directory_of_one_name(place: Place):
    place.put("a")
    with pytest.raises(Invalid, match="'a' is not a directory"):
        place.put("a/b")
    place.put("d/e")
    with pytest.raises(Invalid, match="objects below 'd/'"):
        place.put("d")
    with pytest.raises(NotFound):
        place.objects.info("b", "d", "p")
    with pytest.raises(NotFound):
        place.objects.info("b", "a/b", "p")
    assert place.leftovers() == []


def test_links_and_pipes_are_no_objects(place: Place, tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    place.put("real/file")
    bucket = place.directory / "b"
    (bucket / "link").symlink_to(tmp_path / "secret")
    (bucket / "way").symlink_to(tmp_path)
    os.mkfifo(bucket / "pipe")
    for key in ("link", "way/secret", "pipe"):
        with pytest.raises(NotFound):
            place.objects.open("b", key, "p")
        with pytest.raises(NotFound):
            place.objects.delete("b", key, "p")
    with pytest.raises(Invalid):
        place.put("way/in")
    assert place.keys() == ["real/file"]
    assert os.listdir(tmp_path) == ["secret"]
    place.put("link", b"instead of it")
    assert (tmp_path / "secret").read_text() == "secret"


def test_another_projects_bucket_is_out_of_reach(place: Place):
    place.put("a", bucket="mine", project="p")
    place.put("a", bucket="open", project="default")
    for attempt in (
        lambda: place.objects.info("mine", "a", "q"),
        lambda: place.put("b", bucket="mine", project="q"),
        lambda: place.objects.delete("mine", "a", "q"),
        lambda: place.objects.list("mine", "q"),
        lambda: place.objects.make_bucket("mine", "q"),
        lambda: place.objects.remove_bucket("mine", "q"),
        lambda: place.objects.copy("mine", "a", "theirs", "a", "q"),
        lambda: place.objects.has_bucket("mine", "q"),
    ):
        with pytest.raises(Denied):
            attempt()
    assert [name for name, _ in place.objects.buckets("q")] == ["open"]
    assert [name for name, _ in place.objects.buckets("p")] == ["mine", "open"]


def test_a_bucket_is_made_once_and_removed_when_it_is_empty(place: Place):
    place.objects.make_bucket("b", "p")
    with pytest.raises(AlreadyExists):
        place.objects.make_bucket("b", "p")
    place.put("a")
    with pytest.raises(WrongState):
        place.objects.remove_bucket("b", "p")
    place.objects.delete("b", "a", "p")
    place.objects.remove_bucket("b", "p")
    assert not place.objects.has_bucket("b", "p")
    with pytest.raises(Denied):  # whatever still points there never meets another's data
        place.put("a", project="q")
    place.put("a")


def test_a_marker_is_a_directory_that_stays(place: Place):
    place.put("dir/", b"")
    assert place.keys() == ["dir/"]
    assert place.objects.info("b", "dir/", "p").size == 0
    place.put("dir/a")
    assert place.keys() == ["dir/a"]
    place.objects.delete("b", "dir/a", "p")
    assert place.keys() == ["dir/"]
    place.objects.delete("b", "dir/", "p")
    assert place.keys() == []
    with pytest.raises(Invalid):
        place.put("dir/", b"bytes")


def test_a_directory_that_a_job_has_mounted_stays_when_its_last_object_goes(place: Place):
    place.put("out/deep/a")
    storage = Storage(place.directory, [], place.directory.parent / "data", None)
    bind(storage, "s3://b/out", "p", read_only=False)
    place.objects.delete("b", "out/deep/a", "p")
    assert place.keys() == ["out/"]


def test_what_a_job_has_mounted_now_cannot_be_removed_by_name_either(place: Place):
    mounted = {"cos://b/out/", "obs://other", "file:///b/out"}
    place.objects.mounted = lambda: mounted
    for key in ("out/", "aside/"):
        place.put(key, b"")
        place.objects.delete("b", key, "p")
    assert place.keys() == ["out/"]
    place.objects.make_bucket("other", "p")
    with pytest.raises(WrongState, match="mounted by a job"):
        place.objects.remove_bucket("other", "p")
    mounted.clear()
    place.objects.delete("b", "out/", "p")
    place.objects.remove_bucket("other", "p")
    assert place.keys() == []


def test_what_is_made_belongs_to_the_jobs_user(place: Place):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    objects = EmbeddedStore(Buckets(place.directory, Owners(lambda project: (12345, 12346), 12347, 12348)))
    writer = objects.writer("b", "a/c", "p")
    writer.commit()
    for path, uid in (("b", 0), ("b/a", 12345), ("b/a/c", 12345)):
        status = (place.directory / path).stat()
        assert (status.st_uid, status.st_gid) == (uid, 12346)
    assert (place.directory / "b/a/c").stat().st_mode & 0o777 == 0o660


def test_a_copy_has_the_same_bytes_and_sums(place: Place):
    data = os.urandom(3_000_000)
    info = place.put("a", data, metadata={"k": "v"}, content_type="x/y")
    copied = place.objects.copy("b", "a", "c", "d/e", "p")
    assert place.get("d/e", bucket="c") == data
    assert copied[3:8] == info[3:8]
    changed = place.objects.copy("b", "a", "b", "a", "p", "z/z", {})
    assert (changed.content_type, changed.metadata, changed.md5) == ("z/z", {}, info.md5)
    (place.directory / "b/own").write_bytes(data)
    assert place.objects.copy("b", "own", "b", "known", "p").md5 == info.md5


def test_taken_pieces_have_the_crc_of_the_whole(place: Place):
    first, second = place.put("1", os.urandom(70_000)), place.put("2", os.urandom(5))
    writer = place.objects.writer("b", "both", "p")
    for info in (first, second):
        file, _ = place.objects.open("b", info.key, "p")
        assert info.crc32c
        writer.take(file, info.size, info.crc32c)
        os.close(file)
    info = writer.commit(etag="0" * 32 + "-2")
    both = place.get("1") + place.get("2")
    assert place.get("both") == both
    assert info.crc32c == checksums.encode(google_crc32c.value(both))
    assert (info.md5, info.etag) == (None, "0" * 32 + "-2")


@given(some.binary(max_size=300), some.binary(max_size=300))
def test_the_crc_of_two_pieces(first: bytes, second: bytes):
    both = checksums.combine(google_crc32c.value(first), google_crc32c.value(second), len(second))
    assert both == google_crc32c.value(first + second)


KEYS = sorted(
    [
        "a",
        "a-b",
        "a.b/c",
        "a.txt",
        "b/a",
        "b/b/a",
        "b/b/b",
        "b/c",
        "c/d/e/f",
        "d!",
        "d/x",
        "d0",
        "é/ü",
        "日本/x",
        "😀",
    ]
)


@pytest.fixture(scope="module")
def many() -> Iterator[Place]:
    with reachable_directory() as directory:
        place = Place(directory)
        for key in KEYS:
            place.put(key)
        yield place


@pytest.mark.parametrize("delimiter", ["", "/", "b", "."])
@pytest.mark.parametrize(
    "prefix", ["", "a", "a.", "b", "b/", "b/b", "b/b/", "c/d/e/f", "d/", "no", "no/", "../", "/", "b//"]
)
@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_pages_are_what_sorting_all_keys_would_give(many: Place, prefix: str, delimiter: str, limit: int):
    objects, prefixes, after = [], [], ""
    while True:
        page = many.objects.list("b", "p", prefix, delimiter, after, limit)
        assert len(page.objects) + len(page.prefixes) <= limit
        objects += [one.key for one in page.objects]
        prefixes += page.prefixes
        after = page.next
        if not after:
            break
    assert (objects, prefixes) == listed(prefix, delimiter)


@pytest.mark.parametrize("after", [*KEYS, "b/", "b/b", "b/zzz", "zzz", "😀😀"])
def test_after_any_key(many: Place, after: str):
    assert many.keys(after=after) == [key for key in KEYS if key > after]


def test_a_prefix_is_given_again_while_something_in_it_is_left(many: Place):
    assert many.objects.list("b", "p", "", "/", "b/b/a").prefixes[0] == "b/"
    assert many.objects.list("b", "p", "", "/", "b/c").prefixes[0] == "c/"
    assert many.objects.list("b", "p", "", "/", "b/").prefixes[0] == "c/"


def test_a_small_prefix_does_not_read_the_rest(many: Place, monkeypatch: pytest.MonkeyPatch):
    read: list[str] = []
    scandir = os.scandir

    def watched(here):
        read.append(os.readlink(f"/proc/self/fd/{here}"))
        return scandir(here)

    monkeypatch.setattr(os, "scandir", watched)
    assert many.keys("b/b/") == ["b/b/a", "b/b/b"]
    assert read == [str(many.directory / "b/b/b")]


def test_a_large_directory_that_changes_between_pages(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listing, "_CACHE_FROM", 1)
    for key in ("d/a", "d/b", "d/c"):
        place.put(key)
    os.utime(place.directory / "b/d", (1, 1))  # long settled
    assert place.keys("d/", limit=1) == ["d/a"]
    assert place.keys("d/", after="d/a", limit=1) == ["d/b"]
    place.objects.delete("b", "d/c", "p")
    place.put("d/bb")
    assert place.keys("d/", after="d/a") == ["d/b", "d/bb"]


def listed(prefix: str, delimiter: str) -> tuple[list[str], list[str]]:
    objects, prefixes = [], []
    for key in KEYS:
        if not key.startswith(prefix):
            continue
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        if end < 0:
            objects.append(key)
        elif key[: end + 1] not in prefixes:
            prefixes.append(key[: end + 1])
    return objects, prefixes


def test_no_such_bucket_or_key(place: Place):
    with pytest.raises(NotFound, match="no bucket 'b'"):
        place.objects.info("b", "a", "p")
    with pytest.raises(NotFound, match="no bucket 'b'"):
        place.objects.list("b", "p")
    place.put("x")
    with pytest.raises(NotFound, match="no 'a/b' in the bucket 'b'"):
        place.objects.info("b", "a/b", "p")
    with pytest.raises(NotFound):
        place.objects.delete("b", "a", "p")
