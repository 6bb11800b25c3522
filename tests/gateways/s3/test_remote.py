"""The gateway over buckets in a real store: S3's, Huawei's and Tencent's SDKs see no difference."""

import io
import socket
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from tests.gateways.s3.conftest import OTHER, ROOT, Gateway, open_gateway
from tests.gateways.s3.test_cos import cos
from tests.gateways.s3.test_cos import refused as refused_by_cos
from tests.gateways.s3.test_obs import obs
from tests.stores import READER, S3, FaultyProxy, faulty_proxy, s3, xml
from turnout.storage import RemoteBuckets, RemoteSettings
from turnout.storage.remote import objects

__all__ = ["s3", "xml"]

MB = 1 << 20


@pytest.fixture(scope="module")
def proxy(s3: S3) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3.port) as one:
        yield one


@pytest.fixture(scope="module")
def gateway(s3: S3, xml: Any, proxy: FaultyProxy) -> Iterator[Gateway]:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    stores = {
        "far": s3.backing(),
        "other-far": s3.backing(),
        "google": xml.backing(),
        "shaky": s3.backing(port=proxy.port),
        "read-only": s3.backing(keys=READER),
        "no-rights": s3.backing(keys=("nobody", "nothing-at-all")),
        "missing": s3.backing("no-such-bucket-there"),
        "away": s3.backing(port=port),
        "theirs": s3.backing(),
    }
    buckets = {name: msgspec.convert(one, RemoteSettings) for name, one in stores.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "_PATIENCE", 0.5)
        with open_gateway(remote=RemoteBuckets(buckets, private={"theirs": "other"})) as one:
            yield one


@pytest.fixture(scope="module", params=["far", "google"])
def bucket(request: pytest.FixtureRequest) -> str:
    return request.param


def code(call: Any, **arguments: Any) -> tuple[int, str, str]:
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"], answer["Error"]["Message"]


def test_put_head_get_with_ranges_and_delete(gateway: Gateway, bucket: str) -> None:
    client, key = gateway.client(), "a/ü +&%.txt"
    put = client.put_object(Bucket=bucket, Key=key, Body=b"0123456789", ContentType="text/csv")
    assert put["ETag"] == '"781e5e245d69b566979b86e28d23f2c7"'
    head = client.head_object(Bucket=bucket, Key=key)
    assert (head["ContentLength"], head["ETag"]) == (10, put["ETag"])
    for span, wanted in (
        ("2-4", b"234"),
        ("7-", b"789"),
        ("-2", b"89"),
        ("8-99", b"89"),
        ("4-2", b"0123456789"),
    ):
        got = client.get_object(Bucket=bucket, Key=key, Range=f"bytes={span}")
        assert got["Body"].read() == wanted, span
    assert client.get_object(Bucket=bucket, Key=key)["Body"].read() == b"0123456789"
    assert code(client.get_object, Bucket=bucket, Key=key, Range="bytes=10-")[:2] == (416, "InvalidRange")
    assert code(client.get_object, Bucket=bucket, Key=key, IfMatch='"x"')[0] == 412
    client.delete_object(Bucket=bucket, Key=key)
    client.delete_object(Bucket=bucket, Key=key)
    assert code(client.get_object, Bucket=bucket, Key=key)[:2] == (404, "NoSuchKey")
    assert code(client.head_object, Bucket=bucket, Key=key)[0] == 404
    assert not [name for name in gateway.leftovers() if name.startswith("put-")]


def test_type_and_metadata(gateway: Gateway) -> None:
    client = gateway.client()
    client.put_object(Bucket="far", Key="m", Body=b"x", ContentType="text/csv", Metadata={"owner": "me"})
    head = client.head_object(Bucket="far", Key="m")
    assert (head["ContentType"], head["Metadata"]) == ("text/csv", {"owner": "me"})
    source = {"Bucket": "far", "Key": "m"}
    client.copy_object(Bucket="far", Key="m2", CopySource=source)
    assert client.head_object(Bucket="far", Key="m2")["Metadata"] == {"owner": "me"}
    replaced = {"MetadataDirective": "REPLACE", "Metadata": {"owner": "you"}, "ContentType": "text/x"}
    client.copy_object(Bucket="far", Key="m3", CopySource=source, **replaced)
    head = client.head_object(Bucket="far", Key="m3")
    assert (head["ContentType"], head["Metadata"]) == ("text/x", {"owner": "you"})


def test_lists_in_pages(gateway: Gateway, bucket: str) -> None:
    client = gateway.client()
    keys = ["l/a-b", "l/a/1", "l/a/2", "l/a0", "l/ab/x", "l/b"]
    for key in keys:
        client.put_object(Bucket=bucket, Key=key, Body=b"x")

    def listed(size: int = 1000, **arguments: str) -> list[str]:
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, PaginationConfig={"PageSize": size}, **arguments
        )
        found: list[str] = []
        for page in pages:
            names = [one["Key"] for one in page.get("Contents", [])]
            found += sorted(names + [one["Prefix"] for one in page.get("CommonPrefixes", [])])
        return sorted(found)  # SeaweedFS has an order of its own

    for size in (1, 2, 1000):
        assert listed(size, Prefix="l/") == keys
        assert listed(size, Prefix="l/a") == keys[:5]
        assert listed(size, Prefix="l/a-") == keys[:1]
        assert listed(size, Prefix="l/", Delimiter="/") == ["l/a-b", "l/a/", "l/a0", "l/ab/", "l/b"]
        assert listed(size, Prefix="l/a", Delimiter="/") == ["l/a-b", "l/a/", "l/a0", "l/ab/"]
    assert listed(Prefix="l/", StartAfter="l/a0") == ["l/ab/x", "l/b"]
    assert listed(Prefix="nothing") == []
    deleted = client.delete_objects(
        Bucket=bucket, Delete={"Objects": [{"Key": key} for key in [*keys, "l/no"]]}
    )
    assert (len(deleted["Deleted"]), deleted.get("Errors", [])) == (7, [])
    assert listed(Prefix="l/") == []


def test_uploads_in_parts_and_copies_between_the_two_kinds(gateway: Gateway, bucket: str) -> None:
    client, data = gateway.client(), bytes(range(256)) * (90 << 10)
    client.create_multipart_upload(Bucket=bucket, Key="abandoned")
    options = TransferConfig(multipart_threshold=8 * MB, multipart_chunksize=8 * MB)
    client.upload_fileobj(io.BytesIO(data), bucket, "large", Config=options)
    assert client.get_object(Bucket=bucket, Key="large")["Body"].read() == data
    source = {"Bucket": bucket, "Key": "large"}
    client.copy_object(Bucket="embedded", Key="large", CopySource=source)
    assert (gateway.buckets / "embedded/large").read_bytes() == data
    client.copy_object(Bucket="other-far", Key="back", CopySource={"Bucket": "embedded", "Key": "large"})
    body = client.get_object(Bucket="other-far", Key="back", Range=f"bytes={20 * MB}-")["Body"].read()
    assert body == data[20 * MB :]
    upload = client.create_multipart_upload(Bucket=bucket, Key="joined")["UploadId"]
    part = client.upload_part_copy(
        Bucket=bucket, Key="joined", UploadId=upload, PartNumber=1,
        CopySource=source, CopySourceRange=f"bytes=1-{6 * MB}",
    )  # fmt: skip
    parts = [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]
    client.complete_multipart_upload(
        Bucket=bucket, Key="joined", UploadId=upload, MultipartUpload={"Parts": parts}
    )
    assert client.get_object(Bucket=bucket, Key="joined")["Body"].read() == data[1 : 6 * MB + 1]


def test_conditions_of_writes(gateway: Gateway) -> None:
    client = gateway.client()
    client.put_object(Bucket="far", Key="once", Body=b"1", IfNoneMatch="*")
    assert code(client.put_object, Bucket="far", Key="once", Body=b"2", IfNoneMatch="*")[0] == 412
    assert client.get_object(Bucket="far", Key="once")["Body"].read() == b"1"


def test_buckets(gateway: Gateway) -> None:
    client = gateway.client()
    client.head_bucket(Bucket="far")
    names = {one["Name"] for one in client.list_buckets()["Buckets"]}
    assert {"far", "theirs"} & names == {"far"}
    assert code(client.create_bucket, Bucket="far")[:2] == (409, "BucketAlreadyOwnedByYou")
    assert code(client.delete_bucket, Bucket="far")[:2] == (403, "AccessDenied")


def test_what_is_not_there_or_refused(gateway: Gateway) -> None:
    client = gateway.client()
    assert code(client.get_object, Bucket="missing", Key="x")[:2] == (404, "NoSuchBucket")
    assert code(client.put_object, Bucket="missing", Key="x", Body=b"")[:2] == (404, "NoSuchBucket")
    assert code(client.list_objects_v2, Bucket="missing")[:2] == (404, "NoSuchBucket")
    assert code(client.head_bucket, Bucket="missing")[0] == 404
    for name, call in (("no-rights", client.get_object), ("theirs", client.get_object)):
        status, kind, message = code(call, Bucket=name, Key="x")
        assert (status, kind) == (403, "AccessDenied")
        assert name in message
    status, kind, message = code(client.put_object, Bucket="read-only", Key="x", Body=b"")
    assert (status, kind, "read-only" in message) == (403, "AccessDenied", True)
    assert gateway.client(OTHER).list_objects_v2(Bucket="theirs")["KeyCount"] == 0


def test_a_store_that_is_away(gateway: Gateway) -> None:
    client = gateway.client()
    for call in (client.get_object, client.delete_object):
        status, kind, message = code(call, Bucket="away", Key="x")
        assert (status, kind, "away" in message) == (503, "ServiceUnavailable", True)
    assert code(client.list_objects_v2, Bucket="away")[0] == 503
    answer = obs(gateway).getObject("away", "x")
    assert (answer.status, answer.errorCode, "away" in answer.errorMessage) == (
        503,
        "ServiceUnavailable",
        True,
    )
    assert refused_by_cos(cos(gateway).get_object, "away-1250000000", "x") == (503, "ServiceUnavailable")


@pytest.mark.slow
def test_a_store_that_says_nothing_has_a_time_limit(gateway: Gateway, proxy: FaultyProxy) -> None:
    client = gateway.client()
    proxy.flowing.clear()
    try:
        status, kind, message = code(client.get_object, Bucket="shaky", Key="x")
    finally:
        proxy.flowing.set()
    assert (status, kind, "shaky" in message) == (503, "ServiceUnavailable", True)


def test_keys_that_obstore_does_not_take(gateway: Gateway) -> None:
    client = gateway.client()
    client.put_object(Bucket="far", Key="good", Body=b"x")
    assert code(client.get_object, Bucket="far", Key="a//b")[:2] == (400, "InvalidArgument")
    assert code(client.put_object, Bucket="far", Key="a//b", Body=b"")[:2] == (400, "InvalidArgument")
    keys = [{"Key": key} for key in ("a//b", "good")]
    deleted = client.delete_objects(Bucket="far", Delete={"Objects": keys})
    assert [one["Key"] for one in deleted["Errors"]] == ["a//b"]
    assert code(client.head_object, Bucket="far", Key="good")[0] == 404


def test_a_broken_connection_is_taken_up_again(gateway: Gateway, proxy: FaultyProxy) -> None:
    client, data = gateway.client(), bytes(range(256)) * (80 << 10)
    client.put_object(Bucket="shaky", Key="big", Body=data)
    proxy._after, proxy.cut = 4 * MB, 1
    assert client.get_object(Bucket="shaky", Key="big")["Body"].read() == data
    assert proxy.cut == 0


def test_many_slow_clients_take_little_memory(gateway: Gateway) -> None:
    client = gateway.client(max_pool_connections=30)
    client.put_object(Bucket="far", Key="slow", Body=bytes(24 * MB))
    tracemalloc.start()
    try:
        readers = [client.get_object(Bucket="far", Key="slow")["Body"] for _ in range(20)]
        for reader in readers:
            assert len(reader.read(MB)) == MB
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60 * MB  # the objects have 480 MB
    assert sum(len(reader.read()) for reader in readers) == 20 * 23 * MB


def test_the_clients_of_obs_and_cos(gateway: Gateway) -> None:
    huawei, tencent = obs(gateway), cos(gateway)
    assert huawei.putContent("far", "h/obs", "hello").status == 200
    assert huawei.getObject("far", "h/obs", loadStreamInMemory=True).body.buffer == b"hello"
    assert [one.key for one in huawei.listObjects("far", prefix="h/").body.contents] == ["h/obs"]
    for bucket, key, wanted in (("far", "no", "NoSuchKey"), ("missing", "x", "NoSuchBucket")):
        answer = huawei.getObject(bucket, key)
        assert (answer.status, answer.errorCode) == (404, wanted)
    assert huawei.getObject("theirs", "x").errorCode == "AccessDenied"
    tencent.put_object("far-1250000000", b"hello", "h/cos")
    got = tencent.get_object("far-1250000000", "h/cos", Range="bytes=1-3")
    assert got["Body"].get_raw_stream().read() == b"ell"
    listed = tencent.list_objects("far-1250000000", Prefix="h/")
    assert [one["Key"] for one in listed["Contents"]] == ["h/cos", "h/obs"]
    assert refused_by_cos(tencent.get_object, "far-1250000000", "no") == (404, "NoSuchKey")
    assert refused_by_cos(tencent.get_object, "missing-1250000000", "x") == (404, "NoSuchBucket")
    assert refused_by_cos(tencent.get_object, "theirs-1250000000", "x") == (403, "AccessDenied")


def test_no_secret_of_the_store_is_in_an_answer(gateway: Gateway) -> None:
    client = gateway.client()
    for bucket in ("away", "no-rights", "missing", "read-only"):
        for call, more in ((client.get_object, {}), (client.put_object, {"Body": b"x"})):
            _, _, message = code(call, Bucket=bucket, Key="x", **more)
            assert not any(secret in message for secret in ("secret-of-the-reader", "nothing-at-all"))
    assert ROOT.secret not in message
