"""Tencent's own SDK and coscmd against the gateway."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from qcloud_cos import CosConfig, CosS3Client, CosServiceError

from tests.gateways.s3.conftest import OTHER, ROOT, THIRD, Gateway
from turnout.access import Key

BUCKET = "data-1250000000"
MB = 1 << 20


def cos(gateway: Gateway, key: Key = ROOT, secret: str = "") -> Any:
    config = CosConfig(
        Region="ap-guangzhou",
        SecretId=key.id,
        SecretKey=secret or key.secret,
        Scheme="http",
        Proxies={"http": gateway.url},
    )
    return CosS3Client(config, retry=0)


def refused(call: Any, *args: Any, **kwargs: Any) -> tuple[int, str]:
    with pytest.raises(CosServiceError) as caught:
        call(*args, **kwargs)
    error: Any = caught.value
    return error.get_status_code(), error.get_error_code()


def test_put_get_head_and_delete(gateway: Gateway) -> None:
    client = cos(gateway)
    key = "a/ü +&?%.txt"
    put = client.put_object(
        BUCKET, b"hello", key, Metadata={"x-cos-meta-owner": "me"}, ContentType="text/csv"
    )
    assert put["ETag"] == '"5d41402abc4b2a76b9719d911017c592"'
    head = client.head_object(BUCKET, key)
    assert (head["x-cos-meta-owner"], head["Content-Type"]) == ("me", "text/csv")
    assert head["x-cos-request-id"]
    got = client.get_object(BUCKET, key, Range="bytes=1-3")
    assert got["Body"].get_raw_stream().read() == b"ell"
    client.delete_object(BUCKET, key)
    assert refused(client.head_object, BUCKET, key) == (404, "NoSuchResource")
    assert refused(client.get_object, BUCKET, key) == (404, "NoSuchKey")


def test_one_bucket_by_all_apis(gateway: Gateway) -> None:
    cos(gateway).put_object("shared-1250000000", b"x", "k")
    assert gateway.client().get_object(Bucket="shared", Key="k")["Body"].read() == b"x"
    assert cos(gateway).list_objects("shared-1250000000")["Contents"][0]["Key"] == "k"


def test_by_address(gateway: Gateway) -> None:
    config = CosConfig(
        Region="ap-guangzhou",
        SecretId=ROOT.id,
        SecretKey=ROOT.secret,
        Scheme="http",
        IP="127.0.0.1",
        Port=gateway.port,
    )
    client = CosS3Client(config, retry=0)
    client.put_object(BUCKET, b"x", "by address")
    assert client.head_object(BUCKET, "by address")["Content-Length"] == "1"


def test_lists_and_paging(gateway: Gateway) -> None:
    client = cos(gateway)
    for name in ("l/1", "l/2", "l/3", "l/sub/4", "l/<&>"):
        client.put_object("lists-1250000000", b"x", name)
    page = client.list_objects("lists-1250000000", Prefix="l/", Delimiter="/", MaxKeys=2)
    assert page["IsTruncated"] == "true"
    rest = client.list_objects("lists-1250000000", Prefix="l/", Delimiter="/", Marker=page["NextMarker"])
    keys = [one["Key"] for one in (*page["Contents"], *rest["Contents"])]
    assert sorted(keys) == ["l/1", "l/2", "l/3", "l/<&>"]
    assert rest["CommonPrefixes"] == [{"Prefix": "l/sub/"}]
    deleted = client.delete_objects("lists-1250000000", {"Object": [{"Key": "l/1"}, {"Key": "l/2"}]})
    assert {one["Key"] for one in deleted["Deleted"]} == {"l/1", "l/2"}


def test_buckets(gateway: Gateway) -> None:
    client = cos(gateway, OTHER)
    client.create_bucket("mine-1250000000")
    assert client.bucket_exists("mine-1250000000")
    assert not client.bucket_exists("nothing-1250000000")
    listed = client.list_buckets()["Buckets"]["Bucket"]
    [bucket] = [one["Name"] for one in listed if "mine" in one["Name"]]
    client.put_object(bucket, b"x", "by the name of the list")
    client.delete_object("mine-1250000000", "by the name of the list")
    client.delete_bucket("mine-1250000000")
    assert not client.bucket_exists("mine-1250000000")


def test_parts_of_a_megabyte(gateway: Gateway, tmp_path: Path) -> None:
    client = cos(gateway)
    data = os.urandom(3 * MB + 5)
    (tmp_path / "big").write_bytes(data)
    client.upload_file(BUCKET, "big", str(tmp_path / "big"), PartSize=1)
    client.download_file(BUCKET, "big", str(tmp_path / "back"), PartSize=1)
    assert (tmp_path / "back").read_bytes() == data
    assert gateway.leftovers() == []


def test_a_copy_whose_source_has_a_host(gateway: Gateway) -> None:
    client = cos(gateway)
    client.put_object(BUCKET, b"source", "from/ü")
    source = {"Bucket": BUCKET, "Key": "from/ü", "Region": "ap-guangzhou"}
    client.copy(BUCKET, "to", source)
    client.copy_object(BUCKET, "typed", source, CopyStatus="Replaced", Metadata={"x-cos-meta-a": "b"})
    assert client.get_object(BUCKET, "to")["Body"].get_raw_stream().read() == b"source"
    assert client.head_object(BUCKET, "typed")["x-cos-meta-a"] == "b"


class TestSignatures:
    def test_a_presigned_url(self, gateway: Gateway):
        client = cos(gateway)
        client.put_object(BUCKET, b"by url", "url")
        url = client.get_presigned_url(BUCKET, "url", "GET")

        def fetch(text: str, method: str = "GET") -> int:
            return httpx.request(method, text, proxy=gateway.url).status_code

        assert fetch(url) == 200
        assert fetch(url.replace("/url", "/other")) == 403
        assert fetch(url, "DELETE") == 403

    def test_a_presigned_url_allows_what_its_signer_chose(self, gateway: Gateway):
        client = cos(gateway)
        client.put_object(BUCKET, b"a secret", "secret")
        client.put_object("another-1250000000", b"a secret", "given")

        def put(url: str, **headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return httpx.put(url, content=b"x", headers=named, proxy=gateway.url).status_code

        for sign_host in (True, False):
            url = client.get_presigned_url(BUCKET, "given", "PUT", SignHost=sign_host)
            for header in ("x_cos_copy_source", "x_amz_copy_source"):
                assert put(url, **{header: "/data/secret"}) == 403
            assert put(f"{url}&uploadId=x&partNumber=1") == 403
            assert put(url.replace("//data-", "//another-")) == 403
            assert put(url) == (200 if sign_host else 403)
        upload = client.create_multipart_upload(BUCKET, "parts")["UploadId"]
        part = {"partNumber": "1", "uploadId": upload}
        url = client.get_presigned_url(BUCKET, "parts", "PUT", Params=part)
        assert put(url) == 200
        assert put(url.replace("partNumber=1", "partNumber=2")) == 403
        assert put(url.replace("partNumber=1", "PartNumber=1&partNumber=2")) == 400
        client.abort_multipart_upload(BUCKET, "parts", upload)

    def test_refused(self, gateway: Gateway):
        assert refused(cos(gateway, secret="wrong").list_objects, BUCKET) == (403, "SignatureDoesNotMatch")
        unknown = Key("AKIDnobody", "a-secret", "x")
        assert refused(cos(gateway, unknown).list_objects, BUCKET) == (403, "InvalidAccessKeyId")
        gateway.client(THIRD).put_object(Bucket="closed", Key="k")
        assert refused(cos(gateway, OTHER).list_objects, "closed-1250000000")[0] == 403

    def test_what_is_not_there(self, gateway: Gateway):
        status, code = refused(cos(gateway).put_object_acl, BUCKET, "k", ACL="private")
        assert (status, code) == (501, "NotImplemented")


def test_coscmd(gateway: Gateway, tmp_path: Path) -> None:
    settings = tmp_path / "cos.conf"
    environment = os.environ | {"http_proxy": gateway.url, "no_proxy": "", "HOME": str(tmp_path)}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "coscmd.cos_cmd", "-c", str(settings), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run(
        *("config", "-a", ROOT.id, "-s", ROOT.secret, "-b", BUCKET, "-r", "ap-guangzhou", "--do-not-use-ssl"),
    )
    (tmp_path / "one").write_bytes(os.urandom(2 * MB + 1))
    run("upload", str(tmp_path / "one"), "cmd/one")
    assert "cmd/one" in run("list", "cmd/")
    run("download", "cmd/one", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "one").read_bytes()
    run("delete", "-f", "cmd/one")
    assert refused(cos(gateway).head_object, BUCKET, "cmd/one")[0] == 404
