"""Keys that lead outside the directory, a full disk, another user's rights."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.stager.stager_process import Stager, files, store
from tests.running import reachable_directory
from tests.stores import S3, Gcs
from turnout.errors import Invalid
from turnout.runner.stager.files import parts_of

MEGABYTE = 1 << 20


@pytest.mark.parametrize("key", ["../evil", "a/../../evil", "a//b", "a/./b", "/etc/evil", "x/\0"])
def test_keys_that_lead_outside_have_no_path(key: str) -> None:
    with pytest.raises(Invalid, match="cannot be a file"):
        parts_of(key, "s3://b/")


@pytest.mark.parametrize("key", ["data/../../evil", "data/sub/../../../evil", "data//evil", "data/./evil"])
def test_keys_that_lead_outside_are_refused_by_name(
    gcs: Gcs, stager: Stager, place: Path, tmp_path: Path, key: str
) -> None:
    bucket = f"hostile-{abs(hash(key))}"
    gcs.make_bucket(bucket)
    gcs.put(bucket, key, b"evil")
    said = stager.fail("in", {"backing": gcs.backing(bucket), "prefix": "data/", "to": str(place)})
    assert f"gs://{bucket}/data/" in said
    assert "evil" in said
    assert not list(tmp_path.rglob("evil"))


def test_our_own_name_cannot_be_taken(gcs: Gcs, stager: Stager, place: Path) -> None:
    gcs.make_bucket("names")
    gcs.put("names", ".turnout-incoming-1/a", b"evil")
    said = stager.fail("in", {"backing": gcs.backing("names"), "to": str(place)})
    assert "Turnout uses names that begin with" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", path], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", path], check=True)


@pytest.mark.parametrize("sizes", [[30 * MEGABYTE], [MEGABYTE] * 20])
def test_a_full_disk(s3: S3, stager: Stager, small_disk: Path, sizes: list[int]) -> None:
    backing = s3.backing()
    for number, size in enumerate(sizes):
        store(backing).put(f"{number}", bytes(size))
    said = stager.fail("in", {"backing": backing, "to": str(small_disk)})
    assert said.startswith(f"no space is left for {small_disk}/")
    assert f"it needs {sizes[0] / 1e6:.1f} MB" in said
    assert all(len(data) == MEGABYTE for data in files(small_disk).values()), "nothing is half there"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_files_belong_to_the_jobs_user(s3: S3) -> None:
    nobody = pwd.getpwnam("nobody")
    backing = s3.backing()
    store(backing).put("sub/a", b"1")
    with reachable_directory() as place, Stager(uid=nobody.pw_uid, gid=nobody.pw_gid) as stager:
        os.chown(place, nobody.pw_uid, nobody.pw_gid)
        stager.move("in", {"backing": backing, "to": str(place)})
        assert (place / "sub" / "a").stat().st_uid == nobody.pw_uid
        status = Path(f"/proc/{stager.process.pid}/status").read_text()
        assert f"Uid:\t{nobody.pw_uid}\t{nobody.pw_uid}\t{nobody.pw_uid}\t{nobody.pw_uid}" in status
        assert Path(f"/proc/{stager.process.pid}/environ").stat().st_uid == 0, "no job may look into it"
