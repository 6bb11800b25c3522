"""The buckets of storage clients, without a client and a store."""

import gc
import weakref
from pathlib import Path

import msgspec
import pytest

from turnout.errors import Denied
from turnout.storage import RemoteBuckets, RemoteSettings, Storage
from turnout.storage.clients import OpenBuckets, client_buckets

STORE = RemoteSettings(url="s3://", endpoint="http://127.0.0.1:9", key="a", secret="b")


def storage(directory: Path, remote: RemoteBuckets) -> Storage:
    return Storage(directory / "buckets", [], directory, None, remote=remote)


def test_only_the_last_buckets_stay_open(tmp_path: Path) -> None:
    opened = OpenBuckets(storage(tmp_path, RemoteBuckets()))
    used, unused = opened.get("s3://used", STORE), weakref.ref(opened.get("s3://unused", STORE))
    for number in range(150):
        opened.get(f"s3://bucket-{number}", STORE)
        assert opened.get("s3://used", STORE) is used
    gc.collect()
    assert unused() is None


def test_a_bucket_is_opened_again_with_new_credentials(tmp_path: Path) -> None:
    opened = OpenBuckets(storage(tmp_path, RemoteBuckets()))
    before = opened.get("s3://data", STORE)
    assert opened.get("s3://data", msgspec.structs.replace(STORE, secret="c")) is not before


def test_a_bucket_that_a_project_may_not_use_is_not_listed(tmp_path: Path) -> None:
    """It has a table of its own, and the project of its scheme."""
    remote = RemoteBuckets({"data": STORE}, {"s3": STORE}, {"s3://": "vision"})
    stores = client_buckets(storage(tmp_path, remote))
    assert stores("s3").buckets("vision") == [("data", 0)]
    assert stores("s3").buckets("speech") == []
    with pytest.raises(Denied):
        stores("s3").info("data", "key", "speech")
    assert stores("obs").buckets("speech") == [("data", 0)]
