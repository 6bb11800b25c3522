"""Direct downloads from a real S3 server, and the cases that are left to obstore."""

import os
from contextlib import closing

import pytest

from tests.runner.stager.stager_process import store
from tests.stores import READER, S3, Gcs, faulty_proxy
from turnout.runner.stager.checksums import CRC
from turnout.runner.stager.direct_download import DirectDownload

CHUNK = 1 << 16
KEY = "a b+c/ü"


@pytest.fixture
def content(s3: S3) -> bytes:
    return os.urandom(1 << 20)


def read(backing: dict, etag: str | None, start: int, end: int) -> bytes:
    with closing(DirectDownload(store(backing))) as way:
        return b"".join(way.range(KEY, etag, start, end, CHUNK))


def test_a_range_of_an_object(s3: S3, content: bytes) -> None:
    backing = s3.backing()
    etag = store(backing).put(KEY, content)["e_tag"]
    assert read(backing, etag, 0, len(content)) == content
    assert read(backing, etag, 1000, 300_000) == content[1000:300_000]
    assert read(s3.backing(backing["url"].removeprefix("s3://"), keys=READER), etag, 5, 6) == content[5:6]


def test_no_data_of_a_replaced_object(s3: S3, content: bytes) -> None:
    backing = s3.backing()
    etag = store(backing).put(KEY, content)["e_tag"]
    store(backing).put(KEY, b"another")
    assert read(backing, etag, 0, 7) == b""
    assert read(backing, None, 0, 7) == b""


def test_a_broken_connection_yields_the_data_before_it(s3: S3, content: bytes) -> None:
    backing = s3.backing()
    etag = store(backing).put(KEY, content)["e_tag"]
    with faulty_proxy(s3.port, cut=1, after=300_000) as proxy:
        got = read(backing | {"endpoint": f"http://127.0.0.1:{proxy.port}"}, etag, 0, len(content))
    assert 0 < len(got) < len(content)
    assert content.startswith(got)


def test_no_data_without_a_server_or_permission(s3: S3) -> None:
    backing = s3.backing()
    etag = store(backing).put(KEY, b"x")["e_tag"]
    assert read(backing | {"endpoint": "http://127.0.0.1:1"}, etag, 0, 1) == b""
    assert read(backing | {"secret": "wrong"}, etag, 0, 1) == b""


def test_no_data_with_a_proxy_or_another_kind_of_store(
    s3: S3, gcs: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    gcs.make_bucket("direct")
    gcs.put("direct", KEY, b"x")
    assert read(gcs.backing("direct"), store(gcs.backing("direct")).head(KEY)["e_tag"], 0, 1) == b""
    backing = s3.backing()
    etag = store(backing).put(KEY, b"x")["e_tag"]
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert read(backing, etag, 0, 1) == b""


def test_a_whole_object_and_its_metadata(s3: S3, content: bytes) -> None:
    backing = s3.backing()
    put = store(backing).put(KEY, content, attributes={CRC: "0123abcd"})
    way = DirectDownload(store(backing))
    for _ in range(3):  # over one connection
        whole = way.whole(KEY, len(content))
        assert whole
        assert whole.data == content
        assert (whole.etag, whole.attributes[CRC]) == (put["e_tag"], "0123abcd")
        assert whole.modified == store(backing).head(KEY)["last_modified"]
    way.close()


@pytest.mark.parametrize("trouble", ["gone", "grown", "cut", "secret"])
def test_no_whole_object_after_an_error(s3: S3, content: bytes, trouble: str) -> None:
    backing = s3.backing()
    if trouble != "gone":
        store(backing).put(KEY, content)
    with faulty_proxy(s3.port, cut=trouble == "cut", after=300_000) as proxy:
        odd = {"endpoint": f"http://127.0.0.1:{proxy.port}"} | (
            {"secret": "x"} if trouble == "secret" else {}
        )
        way = DirectDownload(store(backing | odd))
        most = len(content) - 1 if trouble == "grown" else len(content)
        assert way.whole(KEY, most) is None
        store(backing).put(KEY, b"x")
        assert way.whole(KEY, 1) is None, "one trouble is enough"
        way.close()


def test_a_connection_that_the_store_has_closed_is_replaced(s3: S3, content: bytes) -> None:
    backing = s3.backing()
    etag = store(backing).put(KEY, content)["e_tag"]
    with faulty_proxy(s3.port, cut=1, after=700, upwards=True) as proxy:  # goes with the second request
        way = DirectDownload(store(backing | {"endpoint": proxy.endpoint}))
        for _ in range(2):
            assert b"".join(way.range(KEY, etag, 0, len(content), CHUNK)) == content
        assert not proxy.cut, "it was the same connection"
        whole = way.whole(KEY, len(content))
        assert whole
        assert whole.data == content
        way.close()


def test_an_unfinished_download_does_not_leave_its_connection_to_others(s3: S3, content: bytes) -> None:
    backing = s3.backing()
    etag = store(backing).put(KEY, content)["e_tag"]
    way = DirectDownload(store(backing))
    some = way.range(KEY, etag, 0, len(content), CHUNK)
    assert next(some) == content[:CHUNK]
    some.close()
    whole = way.whole(KEY, len(content))
    assert whole
    assert whole.data == content
    way.close()
