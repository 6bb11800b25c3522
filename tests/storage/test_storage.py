"""Sources become directories of this machine, and nothing leads out of where they may be."""

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.storage.binding import bind
from turnout.errors import Denied, Invalid, TurnoutError
from turnout.storage import Mounted, Owners, Storage

ME, YOU, ROOTS, COMMON, EARLIER = 2_000_001, 2_000_002, 2_000_003, 2_000_000, 1_999_999
UIDS = {"me": ME, "you": YOU, "default": ROOTS}
OWNERS = Owners(lambda project: (UIDS[project], UIDS[project]), COMMON, EARLIER)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives things away")


def about(path: Path) -> tuple[int, int, int]:
    """Owner, group and mode."""
    found = path.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


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

    def open(self, owners: Owners | None = None, extra: list[tuple[Path, bool]] | None = None) -> Storage:
        host_paths = [(self.readable, False), (self.writable, True), *(extra or [])]
        return Storage(self.buckets, host_paths, self.data, owners)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class TestBuckets:
    @pytest.mark.parametrize("scheme", ["cos", "obs", "gs", "s3"])
    def test_are_one_namespace_for_all_clouds(self, place: Place, scheme: str):
        bound = bind(place.storage, f"{scheme}://my-bucket/mnist/data", "default", read_only=False)
        assert bound == (place.buckets, ("my-bucket", "mnist", "data"), False)
        assert bound.path == place.buckets / "my-bucket" / "mnist" / "data"
        assert bound.path.is_dir()

    def test_can_be_bound_as_a_whole(self, place: Place):
        (bind(place.storage, "cos://b/data", "default", False).path / "x").write_text("")
        for source in ("cos://b", "cos://b/", "cos://b//."):
            assert bind(place.storage, source, "default", True) == (place.buckets, ("b",), True)

    def test_keep_what_is_in_them(self, place: Place):
        (bind(place.storage, "cos://b/out", "p", False).path / "model").write_text("weights")
        again = bind(place.open(), "gs://b/out/", "p", False)
        assert (again.path / "model").read_text() == "weights"

    def test_checking_makes_nothing(self, place: Place):
        place.storage.check("cos://my-bucket/dir")
        assert not place.buckets.exists()

    def test_belong_to_the_project_that_made_them(self, place: Place):
        bind(place.storage, "cos://mine/a", "me", False)
        for storage in (place.storage, place.open()):
            with pytest.raises(Denied, match="belongs to another project"):
                bind(storage, "s3://mine/b", "you", False)
        assert not (place.buckets / "mine" / "b").exists()
        bind(place.open(), "s3://mine/b", "me", False)

    def test_made_by_root_are_open_to_all(self, place: Place):
        bind(place.storage, "cos://shared", "default", False)
        assert bind(place.open(), "cos://shared/x", "you", False).path.is_dir()

    def test_put_there_by_hand_are_open_to_all(self, place: Place):
        (place.buckets / "by-hand").mkdir(parents=True)
        for project in ("me", "you"):
            bind(place.storage, "cos://by-hand", project, False)

    def test_the_records_are_out_of_reach(self, place: Place):
        bind(place.storage, "cos://b", "me", False)
        with pytest.raises(Invalid):
            bind(place.storage, "cos://.owners", "default", False)

    @pytest.mark.parametrize("link", ["b", "b/dir", "b/dir/deep"])
    def test_links_in_them_are_not_followed(self, place: Place, link: str):
        bind(place.storage, "cos://b", "me", False)
        at = place.buckets / link
        if at.exists():
            at.rmdir()
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(place.secret)
        with pytest.raises(Invalid, match="link"):
            bind(place.storage, "cos://b/dir/deep/er", "me", False)
        assert list(place.secret.iterdir()) == []

    def test_a_file_in_the_way_is_named(self, place: Place):
        (bind(place.storage, "cos://b", "me", False).path / "data").write_text("")
        with pytest.raises(Invalid, match="'data' is not a directory"):
            bind(place.storage, "cos://b/data/train", "me", False)

    @as_root
    def test_belong_to_the_group_of_their_project(self, place: Place):
        storage = place.open(OWNERS)
        deepest = bind(storage, "cos://b/a/c", "me", False).path
        for path in (deepest, deepest.parent):
            assert about(path) == (ME, ME, 0o2770)
        assert about(deepest.parent.parent) == (0, ME, 0o2770)
        writer = storage.embedded.writer("b", "a/object", "me")
        writer.commit()
        assert about(place.buckets / "b/a/object") == (ME, ME, 0o660)
        writer = storage.embedded.writer("other", "made/by/an-object", "you")
        writer.commit()
        assert about(place.buckets / "other") == (0, YOU, 0o2770)
        assert about(place.buckets / "other/made/by/an-object") == (YOU, YOU, 0o660)
        # What is above is ours: a job may go through, and can put nothing in the place of a bucket or of our records.
        above = place.buckets.stat()
        assert (above.st_uid, stat.S_IMODE(above.st_mode)) == (0, 0o711)
        records = (place.buckets / ".owners").stat()
        assert (records.st_uid, stat.S_IMODE(records.st_mode)) == (0, 0o700)

    @as_root
    def test_that_are_open_to_all_belong_to_the_common_group(self, place: Place):
        storage = place.open(OWNERS)
        made = bind(storage, "cos://b/a", "default", False).path
        writer = storage.embedded.writer("b", "a/object", "me")
        writer.commit()
        assert about(made.parent) == (0, COMMON, 0o2770)
        assert about(made) == (ROOTS, COMMON, 0o2770)
        assert about(made / "object") == (ROOTS, COMMON, 0o660)
        # What a job makes there, with the umask that it has, can be changed by those of other projects.
        subprocess.run(["sh", "-c", "umask 022; mkdir -p new; echo x > new/file"], cwd=made, check=True)
        assert about(made / "new")[1:] == (COMMON, 0o2770)
        assert about(made / "new/file")[1:] == (COMMON, 0o660)

    def test_others_have_no_rights(self, place: Place):
        storage = place.open(OWNERS if os.geteuid() == 0 else None)
        made = bind(storage, "cos://b/a", "me", False).path
        writer = storage.embedded.writer("b", "a/object", "me")
        writer.write(b"x")
        writer.commit()
        for path in (made, made.parent, made / "object"):
            assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0

    def test_of_an_earlier_version_are_closed_to_others(self, place: Place):
        storage = place.open(OWNERS if os.geteuid() == 0 else None)
        ours = bind(storage, "cos://ours", "me", False).path
        by_hand = place.buckets / "by-hand"
        by_hand.mkdir()
        for path in (ours, by_hand):
            path.chmod(0o755)
        (place.buckets / "link").symlink_to(place.secret)
        mode = place.secret.stat().st_mode
        storage.open()
        mine = 0o2770 if os.geteuid() == 0 else 0o750
        assert [stat.S_IMODE(path.stat().st_mode) for path in (ours, by_hand)] == [mine, 0o750]
        # Jobs could read what the operator put there, and still can.
        assert os.geteuid() != 0 or by_hand.stat().st_gid == COMMON
        assert place.secret.stat().st_mode == mode

    @as_root
    @pytest.mark.parametrize("runs", [False, True], ids=["alone", "with a job that runs"])
    def test_of_an_earlier_version_become_their_projects(self, place: Place, runs: bool):
        """While a job of the earlier version runs, it can get on with its bucket."""
        made = bind(place.open(), "cos://ours/deep", "me", False).path
        bind(place.open(), "cos://open", "default", False)
        (made / "file").write_text("x")
        (made / "link").symlink_to(place.secret)
        (place.secret / "file").write_text("x")
        (made / "by-hand").mkdir(mode=0o755)
        mine = [place.buckets / "ours", place.buckets / "open", made, made / "file", made / "link"]
        for path in mine:
            os.chown(path, EARLIER, EARLIER, follow_symlinks=False)
        mode = place.secret.stat()
        place.open(OWNERS._replace(earlier_jobs_run=lambda: runs)).open()
        uid = EARLIER if runs else ME
        assert about(place.buckets / "ours") == (EARLIER if runs else 0, ME, 0o2770)
        assert about(made) == (uid, ME, 0o2770)
        assert about(made / "file") == (uid, ME, 0o664)
        assert (made / "link").lstat().st_gid == ME
        assert about(place.buckets / "open")[1:] == (COMMON, 0o2770)
        assert about(made / "by-hand") == (0, 0, 0o755)
        assert (place.secret.stat().st_mode, place.secret.stat().st_uid) == (mode.st_mode, mode.st_uid)
        place.open(OWNERS).open()
        assert about(made) == (ME, ME, 0o2770)

    @pytest.mark.parametrize(
        "bucket",
        ["", ".", "..", ".owners", "a..b", "UPPER", "a b", "-a", "a-", "é", "a" * 64, "a:b", "a%2fb"],
    )
    def test_have_plain_names(self, place: Place, bucket: str):
        with pytest.raises(Invalid, match="cannot be the name of a bucket"):
            place.storage.check(f"cos://{bucket}/x")


class TestHostDirectories:
    def test_are_bound_where_they_are(self, place: Place):
        (place.readable / "mnist").mkdir()
        (place.writable / "out").mkdir()
        storage = place.storage
        assert bind(storage, f"file://{place.readable}/mnist", "p", True) == (
            place.readable,
            ("mnist",),
            True,
        )
        assert bind(storage, f"file://{place.writable}/out", "p", False) == (place.writable, ("out",), False)
        assert bind(storage, f"file://{place.writable}", "p", True) == (place.writable, (), True)

    def test_are_read_only_unless_the_settings_say_otherwise(self, place: Place):
        assert bind(place.storage, f"file://{place.readable}", "p", read_only=False).read_only

    def test_the_closest_setting_counts(self, place: Place):
        inner = place.readable / "out"
        inner.mkdir()
        storage = place.open(extra=[(inner, True)])
        assert not bind(storage, f"file://{inner}", "p", False).read_only
        assert bind(storage, f"file://{place.readable}", "p", False).read_only

    @pytest.mark.parametrize("path", ["/etc", "/", "{top}/secret", "{top}", "{top}/scratchy"])
    def test_beyond_the_settings_are_out_of_reach(self, place: Place, path: str):
        (place.data.parent / "scratchy").mkdir()
        source = "file://" + path.format(top=place.data.parent)
        for call in (place.storage.check, lambda source: bind(place.storage, source, "p", True)):
            with pytest.raises(Invalid, match=rf"host_paths allows .*{place.readable}"):
                call(source)

    def test_are_none_without_settings(self, place: Place):
        with pytest.raises(Invalid, match="host_paths allows nothing"):
            Storage(place.buckets, [], place.data, None).check("file:///tmp")

    def test_must_exist(self, place: Place):
        for call in (place.storage.check, lambda source: bind(place.storage, source, "p", False)):
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
            assert bind(storage, f"file://{spelling}/x", "p", False) == (place.writable, ("x",), False)

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
            with pytest.raises(Invalid, match="contains a home"):
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
        assert bind(storage, f"file://{home}/.cache/datasets", "p", False).read_only


@pytest.mark.parametrize("source", ["nfs://10.0.0.1/dir", "cephfs://user:secret@mon/dir"])
def test_a_file_system_of_a_server_is_left_to_the_engine(place: Place, source: str):
    place.storage.check(source)
    assert isinstance(place.storage.resolve(source, "p", read_only=False, encrypted=False), Mounted)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("", "must begin with one of cos://"),
        ("/data", "must begin with one of cos://"),
        ("http://example.com/x", "must begin with one of cos://"),
        ("COS://bucket/x", "must begin with one of cos://"),
        ("file://host/dir", "three slashes"),
        ("file:///a/../b", "must not have `..`"),
        ("cos://b/..", "must not have `..`"),
        ("cos://b/x\n", "control character"),
        ("cos://b/x\0y", "control character"),
        ("cos://b/\ud800", "not valid UTF-8"),
        ("cos://b/" + "x" * 256, "more than 255 bytes"),
        ("cos://b/" + "x/" * 2000, "longer than 3000 bytes"),
    ],
)
def test_a_bad_source_is_told_what_is_wrong(place: Place, source: str, complaint: str):
    for call in (place.storage.check, lambda source: bind(place.storage, source, "p", False)):
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
        bucket = bind(place.storage, "cos://a/a/b", "default", False).path.parents[1]
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
        bound = bind(trap.storage, source, "default", False)
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
            bind(trap.storage, source, "default", False)
