"""Huawei's own SDK against the gateway, with each of its signatures."""

import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from obs import CompleteMultipartUploadRequest, CompletePart, ObsClient, PutObjectHeader

from tests.gateways.s3.conftest import OTHER, ROOT, THIRD, Gateway
from turnout.access import Key, sigv2

MB = 1 << 20


def obs(gateway: Gateway, signature: str = "obs", key: Key = ROOT, **options: Any) -> Any:
    negotiate = options.pop("negotiate", False)
    secret = options.pop("secret", key.secret)
    return ObsClient(
        access_key_id=key.id,
        secret_access_key=secret,
        server=gateway.url,
        signature=signature,
        is_signature_negotiation=negotiate,
        max_retry_count=0,
        **options,
    )


@pytest.fixture(params=["obs", "v2", "v4"])
def client(request: pytest.FixtureRequest, gateway: Gateway) -> Iterator[Any]:
    one = obs(gateway, request.param)
    yield one
    one.close()


def ok(answer: Any) -> Any:
    assert answer.status < 300, (answer.status, answer.errorCode, answer.errorMessage)
    return answer


def test_put_get_head_and_delete(client: Any) -> None:
    key = "a/ü +&%.txt"
    ok(
        client.putContent(
            "obsdata", key, "hello", metadata={"owner": "me"}, headers=PutObjectHeader(contentType="text/csv")
        )
    )
    head = ok(client.getObjectMetadata("obsdata", key))
    assert (head.body.contentType, head.body.contentLength, dict(head.header)["owner"]) == (
        "text/csv",
        5,
        "me",
    )
    assert head.requestId
    assert ok(client.getObject("obsdata", key, loadStreamInMemory=True)).body.buffer == b"hello"
    assert ok(client.deleteObject("obsdata", key)).status == 204
    assert client.getObjectMetadata("obsdata", key).status == 404
    gone = client.getObject("obsdata", key)
    assert (gone.status, gone.errorCode) == (404, "NoSuchKey")


def test_buckets_and_lists(client: Any) -> None:
    name = f"obslists-{os.urandom(4).hex()}"
    ok(client.createBucket(name))
    assert ok(client.headBucket(name))
    assert client.headBucket("obsnothing").status == 404
    assert name in [bucket.name for bucket in ok(client.listBuckets(False)).body.buckets]
    for key in ("l/1", "l/2", "l/3", "l/sub/4", "l/<&>"):
        ok(client.putContent(name, key, "x"))
    page = ok(client.listObjects(name, prefix="l/", delimiter="/", max_keys=2)).body
    assert page.is_truncated
    rest = ok(client.listObjects(name, prefix="l/", delimiter="/", marker=page.next_marker)).body
    assert sorted(one.key for one in (*page.contents, *rest.contents)) == ["l/1", "l/2", "l/3", "l/<&>"]
    assert [one.prefix for one in rest.commonPrefixs] == ["l/sub/"]


def test_parts_and_resumable_transfers(client: Any, gateway: Gateway, tmp_path: Path) -> None:
    data = os.urandom(3 * MB + 5)
    (tmp_path / "big").write_bytes(data)
    ok(
        client.uploadFile(
            "obsdata", "big", str(tmp_path / "big"), partSize=MB, taskNum=2, enableCheckpoint=True
        )
    )
    ok(
        client.downloadFile(
            "obsdata", "big", str(tmp_path / "back"), partSize=MB, taskNum=2, enableCheckpoint=True
        )
    )
    assert (tmp_path / "back").read_bytes() == data
    upload = ok(client.initiateMultipartUpload("obsdata", "parts")).body.uploadId
    parts = [
        CompletePart(
            number, ok(client.uploadPart("obsdata", "parts", number, upload, content=text)).body.etag
        )
        for number, text in ((1, "a" * (100 << 10)), (2, "b"))
    ]
    assert [part.partNumber for part in ok(client.listParts("obsdata", "parts", upload)).body.parts] == [1, 2]
    ok(client.completeMultipartUpload("obsdata", "parts", upload, CompleteMultipartUploadRequest(parts)))
    assert ok(client.getObjectMetadata("obsdata", "parts")).body.contentLength == (100 << 10) + 1
    assert gateway.leftovers() == []


def test_copies(client: Any) -> None:
    ok(client.putContent("obsdata", "from/ü", "source"))
    ok(client.copyObject("obsdata", "from/ü", "obsdata", "to"))
    assert ok(client.getObject("obsdata", "to", loadStreamInMemory=True)).body.buffer == b"source"


def test_the_client_finds_its_signature(gateway: Gateway) -> None:
    client = obs(gateway, negotiate=True)
    ok(client.putContent("obsdata", "negotiated", "x"))
    assert gateway.client().get_object(Bucket="obsdata", Key="negotiated")["Body"].read() == b"x"
    client.close()


@pytest.mark.parametrize("signature", ["obs", "v2", "v4"])
def test_a_signed_url(gateway: Gateway, signature: str) -> None:
    client = obs(gateway, signature)
    ok(client.putContent("obsdata", "url", "by url"))
    url = client.createSignedUrl("GET", "obsdata", "url", expires=60).signedUrl

    def fetch(text: str) -> int:
        try:
            with urllib.request.urlopen(text) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert (fetch(url), fetch(url.replace("/url?", "/other?"))) == (200, 403)
    client.close()


def test_a_signed_url_does_not_read_another_object(gateway: Gateway) -> None:
    gateway.client().put_object(Bucket="obsdata", Key="secret", Body=b"a secret")
    expires = int(time.time()) + 60
    signature = quote(sigv2.sign(ROOT, f"PUT\n\n\n{expires}\n/obsdata/given"), safe="")
    url = f"{gateway.url}/obsdata/given?AccessKeyId={ROOT.id}&Expires={expires}&Signature={signature}"

    def put(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.put(url, content=b"x", headers=named).status_code

    assert put(x_obs_copy_source="/obsdata/secret") == 403
    assert put(x_amz_copy_source="/obsdata/secret") == 403
    assert put() == 200


@pytest.mark.parametrize("signature", ["obs", "v2", "v4"])
def test_refused(gateway: Gateway, signature: str) -> None:
    def refusal(**options: Any) -> tuple[int, str]:
        client = obs(gateway, signature, **options)
        answer = client.listObjects("obsclosed")
        client.close()
        return answer.status, answer.errorCode

    gateway.client(THIRD).put_object(Bucket="obsclosed", Key="k")
    assert refusal(secret="wrong") == (403, "SignatureDoesNotMatch")
    assert refusal(key=Key("AKIDnobody", "a-secret", "x")) == (403, "InvalidAccessKeyId")
    assert refusal(key=OTHER) == (403, "AccessDenied")


def test_calls_of_a_file_system_are_refused_clearly(gateway: Gateway) -> None:
    client = obs(gateway)
    ok(client.putContent("obsdata", "file", "whole"))
    for answer in (
        client.renameFile("obsdata", "file", "other"),
        client.appendObject("obsdata", "file", {"content": "more", "position": 5}),
    ):
        assert (answer.status, answer.errorCode) == (501, "NotImplemented"), answer
        assert "x-amz" not in answer.errorMessage
    assert ok(client.getObject("obsdata", "file", loadStreamInMemory=True)).body.buffer == b"whole"
    client.close()
