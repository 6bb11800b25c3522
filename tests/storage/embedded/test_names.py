"""One bucket has one directory, whichever of its names an API uses, and one owner."""

import os
from pathlib import Path

import pytest

from tests.storage.binding import bind
from turnout.errors import Denied
from turnout.storage import RemoteBuckets, RemoteSettings, Storage
from turnout.storage.source import parse, parse_object, without_account

FULL, HOST = "data-1250000000", "data-1250000000.cos.ap-beijing.myqcloud.com"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("data-1250000000", "data"),
        ("my-data-1399999999", "my-data"),
        ("data-1250000000-x", "data-1250000000-x"),
        ("run-1700000000", "run-1700000000"),  # the seconds since 1970
        ("run-12500000000", "run-12500000000"),
        ("-1250000000", "-1250000000"),
        ("data", "data"),
    ],
)
def test_which_numbers_are_those_of_accounts(name: str, expected: str):
    assert without_account(name) == expected


@pytest.mark.parametrize("end", ["cos.ap-beijing.myqcloud.com", "cos-internal.ap-x.tencentcos.cn"])
def test_the_host_of_a_bucket(end: str):
    assert parse(f"cos://{FULL}.{end}/dir")[:2] == ("cos", FULL)
    assert parse_object(f"cos://{FULL}.{end}/dir/key") == ("cos", FULL, "dir/key")
    assert parse(f"gs://{FULL}.{end}/dir")[:2] == ("gs", f"{FULL}.{end}")


def open_storage(place: Path, open_to_all: bool = False, remote: RemoteBuckets = RemoteBuckets()) -> Storage:  # noqa: B008
    return Storage(place / "buckets", [], place, None, remote=remote, open_to_all=open_to_all)


def put(storage: Storage, bucket: str, key: str, project: str = "p1", data: bytes = b"x") -> None:
    writer = storage.embedded.writer(bucket, key, project)
    writer.write(data)
    writer.commit()


def keys(storage: Storage, bucket: str, project: str = "p1") -> list[str]:
    return [one.key for one in storage.embedded.list(bucket, project).objects]


def test_a_bucket_has_one_directory(tmp_path: Path):
    storage = open_storage(tmp_path)
    put(storage, FULL, "a")
    put(storage, "data", "b")
    bind(storage, f"cos://{HOST}/c", "p1", read_only=False)
    assert sorted(os.listdir(tmp_path / "buckets" / "data")) == ["a", "b", "c"]
    for name in ("data", FULL):
        assert keys(storage, name) == ["a", "b", "c/"]
        assert storage.embedded.has_bucket(name, "p1")
        with pytest.raises(Denied):
            storage.embedded.has_bucket(name, "p2")
    assert [name for name, _ in storage.embedded.buckets("p1")] == ["data"]
    storage.embedded.delete(FULL, "a", "p1")
    assert keys(storage, "data") == ["b", "c/"]


def test_a_mounted_directory_stays_whatever_its_name(tmp_path: Path):
    storage = open_storage(tmp_path)
    put(storage, FULL, "dir/a")
    storage.embedded.mounted = lambda: [f"cos://{FULL}/dir"]
    storage.embedded.delete("data", "dir/a", "p1")
    assert (tmp_path / "buckets" / "data" / "dir").is_dir()


def test_one_that_has_the_full_name_keeps_it(tmp_path: Path):
    """As an earlier version made it."""
    (tmp_path / "buckets" / FULL).mkdir(parents=True)
    storage = open_storage(tmp_path)
    put(storage, FULL, "a")
    bind(storage, f"cos://{HOST}/c", "p1", read_only=False)
    assert sorted(os.listdir(tmp_path / "buckets" / FULL)) == ["a", "c"]
    assert not (tmp_path / "buckets" / "data").exists()


def test_settings_may_have_either_name():
    one, scheme = RemoteSettings(url="s3://one"), RemoteSettings(url="cos://", region="ap-beijing")
    assert RemoteBuckets({"data": one}).settings("cos", FULL) is one
    assert RemoteBuckets({FULL: one}).settings("cos", FULL) is one
    found = RemoteBuckets({}, {"cos": scheme}).settings("cos", FULL)
    assert found
    assert found.url == f"cos://{FULL}"  # as Tencent knows it
    private = RemoteBuckets({"data": one}, private={"data": "p1"})
    with pytest.raises(Denied):
        private.find(f"cos://{FULL}", parse(f"cos://{FULL}"), "p2")  # type: ignore[arg-type]


def test_without_authentication_everything_is_open(tmp_path: Path):
    storage = open_storage(tmp_path)
    put(storage, "before", "a", "p1")
    storage = open_storage(tmp_path, open_to_all=True)
    put(storage, "since", "a", "p1")
    for bucket in ("before", "since"):
        assert keys(storage, bucket, "default") == keys(storage, bucket, "p2") == ["a"]
        put(storage, bucket, "b", "p2")
    assert [name for name, _ in storage.embedded.buckets("p3")] == ["before", "since"]
    storage = open_storage(tmp_path)
    assert keys(storage, "since", "p2") == ["a", "b"]  # it was nobody's
    with pytest.raises(Denied):
        keys(storage, "before", "p2")
