"""Sources become directories of this machine, and nothing leads out of where they may be."""

import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from turnout.errors import Denied, Invalid, TurnoutError, Unsupported
from turnout.storage import Storage


class Place:
    """A data directory, and beside it a directory that may be read and one that may be written to."""

    def __init__(self, top: Path) -> None:
        self.data = top / "data"
        self.buckets = self.data / "buckets"
        self.readable = top / "datasets"
        self.writable = top / "scratch"
        self.secret = top / "secret"
        for directory in (self.data, self.readable, self.writable, self.secret):
            directory.mkdir()
        self.storage = self.open()

    def open(
        self, owner: tuple[int, int] | None = None, extra: list[tuple[Path, bool]] | None = None
    ) -> Storage:
        host_paths = [(self.readable, False), (self.writable, True), *(extra or [])]
        return Storage(self.buckets, host_paths, self.data, owner)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class TestBuckets:
    @pytest.mark.parametrize("scheme", ["cos", "obs", "gs", "s3"])
    def test_are_one_namespace_for_all_clouds(self, place: Place, scheme: str):
        bound = place.storage.bind(f"{scheme}://my-bucket/mnist/data", "default", read_only=False)
        assert bound == (place.buckets, ("my-bucket", "mnist", "data"), False)
        assert bound.path == place.buckets / "my-bucket" / "mnist" / "data"
        assert bound.path.is_dir()

    def test_can_be_bound_as_a_whole(self, place: Place):
        for source in ("cos://b", "cos://b/", "cos://b//."):
            assert place.storage.bind(source, "default", True) == (place.buckets, ("b",), True)

    def test_keep_what_is_in_them(self, place: Place):
        (place.storage.bind("cos://b/out", "p", False).path / "model").write_text("weights")
        again = place.open().bind("gs://b/out/", "p", False)
        assert (again.path / "model").read_text() == "weights"

    def test_checking_makes_nothing(self, place: Place):
        place.storage.check("cos://my-bucket/dir")
        assert not place.buckets.exists()

    def test_belong_to_the_project_that_made_them(self, place: Place):
        place.storage.bind("cos://mine/a", "me", False)
        for storage in (place.storage, place.open()):
            with pytest.raises(Denied, match="belongs to another project"):
                storage.bind("s3://mine/b", "you", False)
        assert not (place.buckets / "mine" / "b").exists()
        place.open().bind("s3://mine/b", "me", False)

    def test_made_by_root_are_open_to_all(self, place: Place):
        place.storage.bind("cos://shared", "default", False)
        assert place.open().bind("cos://shared/x", "you", False).path.is_dir()

    def test_put_there_by_hand_are_open_to_all(self, place: Place):
        (place.buckets / "by-hand").mkdir(parents=True)
        for project in ("me", "you"):
            place.storage.bind("cos://by-hand", project, False)

    def test_the_records_are_out_of_reach(self, place: Place):
        place.storage.bind("cos://b", "me", False)
        with pytest.raises(Invalid):
            place.storage.bind("cos://.owners", "default", False)

    @pytest.mark.parametrize("link", ["b", "b/dir", "b/dir/deep"])
    def test_links_in_them_are_not_followed(self, place: Place, link: str):
        place.storage.bind("cos://b", "me", False)
        at = place.buckets / link
        if at.exists():
            at.rmdir()
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(place.secret)
        with pytest.raises(Invalid, match="link"):
            place.storage.bind("cos://b/dir/deep/er", "me", False)
        assert list(place.secret.iterdir()) == []

    def test_a_file_in_the_way_is_named(self, place: Place):
        (place.storage.bind("cos://b", "me", False).path / "data").write_text("")
        with pytest.raises(Invalid, match="'data' is not a directory"):
            place.storage.bind("cos://b/data/train", "me", False)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives things away")
    def test_belong_to_the_user_that_jobs_run_as(self, place: Place):
        nobody = pwd.getpwnam("nobody")
        storage = place.open(owner=(nobody.pw_uid, nobody.pw_gid))
        deepest = storage.bind("cos://b/a/c", "me", False).path
        for path in (deepest, deepest.parent, deepest.parent.parent):
            assert (path.stat().st_uid, path.stat().st_gid) == (nobody.pw_uid, nobody.pw_gid)
        # What is above is ours: a job may go through, and can put nothing in the place of a bucket or of our records.
        above = place.buckets.stat()
        assert (above.st_uid, stat.S_IMODE(above.st_mode)) == (0, 0o711)
        records = (place.buckets / ".owners").stat()
        assert (records.st_uid, stat.S_IMODE(records.st_mode)) == (0, 0o700)

    @pytest.mark.parametrize(
        "bucket",
        ["", ".", "..", ".owners", "a..b", "UPPER", "a b", "-a", "a-", "é", "a" * 64, "a:b", "a%2fb"],
    )
    def test_have_plain_names(self, place: Place, bucket: str):
        with pytest.raises(Invalid, match="a bucket's name has"):
            place.storage.check(f"cos://{bucket}/x")


class TestHostDirectories:
    def test_are_bound_where_they_are(self, place: Place):
        (place.readable / "mnist").mkdir()
        (place.writable / "out").mkdir()
        bind = place.storage.bind
        assert bind(f"file://{place.readable}/mnist", "p", True) == (place.readable, ("mnist",), True)
        assert bind(f"file://{place.writable}/out", "p", False) == (place.writable, ("out",), False)
        assert bind(f"file://{place.writable}", "p", True) == (place.writable, (), True)

    def test_are_read_only_unless_the_settings_say_otherwise(self, place: Place):
        assert place.storage.bind(f"file://{place.readable}", "p", read_only=False).read_only

    def test_the_closest_setting_counts(self, place: Place):
        inner = place.readable / "out"
        inner.mkdir()
        storage = place.open(extra=[(inner, True)])
        assert not storage.bind(f"file://{inner}", "p", False).read_only
        assert storage.bind(f"file://{place.readable}", "p", False).read_only

    @pytest.mark.parametrize("path", ["/etc", "/", "{top}/secret", "{top}", "{top}/scratchy"])
    def test_beyond_the_settings_are_out_of_reach(self, place: Place, path: str):
        (place.data.parent / "scratchy").mkdir()
        source = "file://" + path.format(top=place.data.parent)
        for call in (place.storage.check, lambda source: place.storage.bind(source, "p", True)):
            with pytest.raises(Invalid, match=rf"it reaches .*{place.readable}"):
                call(source)

    def test_are_none_without_settings(self, place: Place):
        with pytest.raises(Invalid, match="it reaches nothing"):
            Storage(place.buckets, [], place.data, None).check("file:///tmp")

    def test_must_exist(self, place: Place):
        for call in (place.storage.check, lambda source: place.storage.bind(source, "p", False)):
            with pytest.raises(Invalid, match="there is no 'missing'"):
                call(f"file://{place.writable}/missing/dir")
        assert list(place.writable.iterdir()) == []

    def test_must_be_directories(self, place: Place):
        (place.writable / "file").write_text("")
        with pytest.raises(Invalid, match="not a directory"):
            place.storage.check(f"file://{place.writable}/file")

    @pytest.mark.parametrize("target", ["{secret}", "../secret", ".", "/proc/self/root"])
    def test_links_to_anywhere_are_not_followed(self, place: Place, target: str):
        (place.writable / "link").symlink_to(target.format(secret=place.secret))
        for below in ("", "/", "/deeper"):
            with pytest.raises(Invalid, match="link"):
                place.storage.check(f"file://{place.writable}/link{below}")

    def test_a_setting_may_be_a_link_itself(self, place: Place):
        link = place.data.parent / "link"
        link.symlink_to(place.writable)
        (place.writable / "x").mkdir()
        storage = Storage(place.buckets, [(link, True)], place.data, None)
        for spelling in (link, place.writable):
            assert storage.bind(f"file://{spelling}/x", "p", False) == (place.writable, ("x",), False)

    def test_never_hold_the_data_directory(self, place: Place):
        place.buckets.mkdir()
        storage = place.open(extra=[(place.data.parent, True), (place.data, True), (Path("/"), True)])
        for path in (place.data, place.buckets, place.data.parent, Path("/")):
            with pytest.raises(Invalid, match="data directory"):
                storage.check(f"file://{path}")
        storage.check(f"file://{place.secret}")

    def test_never_hold_a_home_or_its_dot_directories(self, place: Place, monkeypatch: pytest.MonkeyPatch):
        home = place.writable / "home"
        for name in (".ssh/keys", "project/.venv"):
            (home / name).mkdir(parents=True)
        monkeypatch.setenv("HOME", str(home))
        storage = place.open()
        for path in (home, place.writable):
            with pytest.raises(Invalid, match="holds a home"):
                storage.check(f"file://{path}")
        for path in (home / ".ssh", home / ".ssh" / "keys"):
            with pytest.raises(Invalid, match="dot-directory"):
                storage.check(f"file://{path}")
        storage.check(f"file://{home}/project/.venv")

    def test_a_dot_directory_that_the_settings_name_is_meant(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ):
        home = place.writable / "home"
        (home / ".cache" / "datasets").mkdir(parents=True)
        monkeypatch.setenv("HOME", str(home))
        storage = place.open(extra=[(home / ".cache", False)])
        assert storage.bind(f"file://{home}/.cache/datasets", "p", False).read_only


@pytest.mark.parametrize("source", ["nfs://10.0.0.1/dir", "cephfs://user:secret@mon/dir"])
def test_what_the_kernel_mounts_is_not_ours(place: Place, source: str):
    place.storage.check(source)
    with pytest.raises(Unsupported, match="file:// can name where it is mounted"):
        place.storage.bind(source, "p", False)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("", "must begin with one of cos://"),
        ("/data", "must begin with one of cos://"),
        ("http://example.com/x", "must begin with one of cos://"),
        ("COS://bucket/x", "must begin with one of cos://"),
        ("file://host/dir", "three slashes"),
        ("file:///a/../b", "must not lead upwards"),
        ("cos://b/..", "must not lead upwards"),
        ("cos://b/x\n", "control character"),
        ("cos://b/x\0y", "control character"),
        ("cos://b/\ud800", "no text"),
        ("cos://b/" + "x" * 256, "more than 255 bytes"),
        ("cos://b/" + "x/" * 2000, "longer than 3000 bytes"),
    ],
)
def test_a_bad_source_is_told_what_is_wrong(place: Place, source: str, complaint: str):
    for call in (place.storage.check, lambda source: place.storage.bind(source, "p", False)):
        with pytest.raises(Invalid, match=complaint):
            call(source)
    assert not place.buckets.exists()


# What a hostile caller would try.

names = [".", "", "a", "b", "link", "out", "up", ".owners", "secret", "data", "buckets"]
tricks = ["..", "...", "~", "%2e%2e", "a\\b", "*", "$HOME"]
parts = st.sampled_from(names + tricks) | st.text(max_size=4)
paths = st.lists(parts, max_size=6).map("/".join)


@pytest.fixture(scope="module")
def trap() -> Iterator[Place]:
    """Full of links that lead out."""
    with tempfile.TemporaryDirectory() as top:
        place = Place(Path(top).resolve())
        bucket = place.storage.bind("cos://a/a/b", "default", False).path.parents[1]
        for directory in (bucket, bucket / "a", place.writable, place.readable):
            (directory / "link").symlink_to(place.secret)
            (directory / "out").symlink_to("../" * 20 + "etc")
            (directory / "up").symlink_to("..")
            (directory / "b").mkdir(exist_ok=True)
        yield place


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    scheme=st.sampled_from(["cos", "gs", "file"]), start=st.sampled_from(["", "a", "W", "R", "D"]), path=paths
)
@example(scheme="cos", start="a", path="/link/x")
@example(scheme="file", start="W", path="/up/secret")
def test_no_source_leads_out(trap: Place, scheme: str, start: str, path: str):
    start = {"W": str(trap.writable), "R": str(trap.readable), "D": str(trap.data)}.get(start, start)
    source = f"{scheme}://{start}{path}"
    try:
        bound = trap.storage.bind(source, "default", False)
    except TurnoutError:
        return
    real = Path(os.path.realpath(bound.path))
    assert real == bound.path, "no link on the way"
    assert real.is_dir()
    buckets = [trap.buckets / name for name in os.listdir(trap.buckets) if name != ".owners"]
    roots = [trap.readable, trap.writable] if scheme == "file" else buckets
    assert any(real.is_relative_to(root) for root in roots)
    assert list(trap.secret.iterdir()) == []


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=st.text(max_size=30) | paths.map(lambda path: f"cos://{path}"))
def test_checking_says_what_binding_would(trap: Place, source: str):
    try:
        trap.storage.check(source)
    except Invalid:
        with pytest.raises(Invalid):
            trap.storage.bind(source, "default", False)
