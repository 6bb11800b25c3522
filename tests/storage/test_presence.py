"""Whether there is something at a source, and what a job gets if there is not."""

import os
from pathlib import Path

import pytest

from turnout.errors import Denied, NotFound
from turnout.runner.supervisor.disk.remove import remove
from turnout.storage import Bound, Copied, EmbeddedPath, Linked, Presence, Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "buckets", [], tmp_path, None)


@pytest.fixture
def buckets(tmp_path: Path) -> Path:
    """`full/dir/deep/file`, `full/hollow/a/b` without a file, and `bare`."""
    top = tmp_path / "buckets"
    (top / "full" / "dir" / "deep").mkdir(parents=True)
    (top / "full" / "dir" / "deep" / "file").write_text("")
    (top / "full" / "hollow" / "a" / "b").mkdir(parents=True)
    (top / "full" / "link").symlink_to(top / "full" / "dir")
    (top / "bare").mkdir()
    return top


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("cos://full", Presence.DIRECTORY),
        ("obs://full/dir", Presence.DIRECTORY),
        ("gs://full/dir/deep/file", Presence.OBJECT),
        ("s3://full/hollow", Presence.EMPTY),
        ("cos://full/dir/typo", Presence.EMPTY),
        ("cos://full/dir/deep/file/below", Presence.EMPTY),
        ("cos://full/link", Presence.EMPTY),
        ("cos://bare", Presence.EMPTY),
        ("cos://none", Presence.NO_BUCKET),
        ("cos://none/dir", Presence.NO_BUCKET),
    ],
)
def test_what_is_at_a_source(storage: Storage, buckets: Path, source: str, found: Presence):
    before = sorted(buckets.rglob("*"))
    path = storage.locate(source, "me")
    assert isinstance(path, EmbeddedPath)
    assert path.presence() is found
    if not found.exists:
        with pytest.raises(NotFound, match=source):
            storage.resolve(source, "me", read_only=True, encrypted=False, required=True)
        with pytest.raises(NotFound, match=source):
            path.bind(read_only=True)
    assert sorted(buckets.rglob("*")) == before, "looking makes nothing"


def test_nothing_is_made_before_there_is_a_bucket(storage: Storage, tmp_path: Path):
    with pytest.raises(NotFound):
        storage.resolve("gs://none/x", "me", read_only=True, encrypted=False, required=True)
    assert isinstance(storage.resolve("gs://none", "me", read_only=False, encrypted=False), Copied)
    assert not (tmp_path / "buckets").exists()


def test_how_a_job_gets_at_it(storage: Storage, buckets: Path):
    def resolve(source: str, **flags: bool) -> type:
        return type(
            storage.resolve(source, "me", **{"read_only": False, "encrypted": False} | flags)  # type: ignore[arg-type]
        )

    assert resolve("cos://full/dir", required=True) is Bound
    assert resolve("cos://full/dir/deep/file", read_only=True, required=True) is Linked
    assert resolve("cos://full/new") is Bound
    assert resolve("cos://none") is Copied, "only what is written makes the bucket"
    assert resolve("cos://none", make=True) is Bound


def test_another_projects_bucket_is_denied_and_not_called_missing(storage: Storage, buckets: Path):
    (buckets / ".owners").mkdir()
    (buckets / ".owners" / "bare").write_text("you")
    path = storage.locate("cos://bare/x", "me")
    assert isinstance(path, EmbeddedPath)
    with pytest.raises(Denied):
        path.presence()


def test_a_tree_of_very_many_directories_is_not_searched_to_its_end(storage: Storage, buckets: Path):
    for number in range(1100):
        (buckets / "bare" / str(number)).mkdir()
    path = storage.locate("cos://bare", "me")
    assert isinstance(path, EmbeddedPath)
    assert path.presence() is Presence.DIRECTORY


def test_a_very_deep_tree_is_not_searched_to_its_end(storage: Storage, buckets: Path):
    here = os.open(buckets / "bare", os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    path = storage.locate("cos://bare", "me")
    assert isinstance(path, EmbeddedPath)
    assert path.presence() is Presence.DIRECTORY
    remove(str(buckets / "bare"))
