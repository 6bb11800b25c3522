"""What boto3 does, against the door."""

import io
import os
import urllib.error
import urllib.request

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from tests.gateways.s3.conftest import OTHER, ROOT, Gateway


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return error.value.response["Error"]["Code"]


def test_put_get_head_delete(gateway: Gateway):
    s3 = gateway.client()
    put = s3.put_object(
        Bucket="b", Key="a/ü +&?%.txt", Body=b"hello", ContentType="text/plain", Metadata={"k": "v"}
    )
    got = s3.get_object(Bucket="b", Key="a/ü +&?%.txt")
    assert got["Body"].read() == b"hello"
    assert (got["ETag"], got["ContentType"], got["Metadata"]) == (put["ETag"], "text/plain", {"k": "v"})
    assert s3.head_object(Bucket="b", Key="a/ü +&?%.txt")["ContentLength"] == 5
    s3.delete_object(Bucket="b", Key="a/ü +&?%.txt")
    s3.delete_object(Bucket="b", Key="a/ü +&?%.txt")
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket="b", Key="a/ü +&?%.txt")
    assert code(error) == "NoSuchKey"
    with pytest.raises(ClientError) as error:
        s3.head_object(Bucket="b", Key="a/ü +&?%.txt")
    assert code(error) == "404"


def test_buckets(gateway: Gateway):
    s3 = gateway.client()
    s3.create_bucket(Bucket="made")
    assert "made" in [one["Name"] for one in s3.list_buckets()["Buckets"]]
    s3.head_bucket(Bucket="made")
    assert s3.get_bucket_location(Bucket="made")["LocationConstraint"] is None
    with pytest.raises(ClientError) as error:
        s3.create_bucket(Bucket="made")
    assert code(error) == "BucketAlreadyOwnedByYou"
    s3.put_object(Bucket="made", Key="a", Body=b"")
    with pytest.raises(ClientError) as error:
        s3.delete_bucket(Bucket="made")
    assert code(error) == "BucketNotEmpty"
    s3.delete_object(Bucket="made", Key="a")
    s3.delete_bucket(Bucket="made")
    with pytest.raises(ClientError) as error:
        s3.head_bucket(Bucket="made")
    assert code(error) == "404"
    with pytest.raises(ClientError) as error:
        s3.list_objects_v2(Bucket="made")
    assert code(error) == "NoSuchBucket"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes=0-0", b"0"),
        ("bytes=3-", b"3456789"),
        ("bytes=-2", b"89"),
        ("bytes=8-99", b"89"),
        ("bytes=-99", b"0123456789"),
    ],
)
def test_ranges(gateway: Gateway, text: str, expected: bytes):
    s3 = gateway.client()
    s3.put_object(Bucket="b", Key="digits", Body=b"0123456789")
    got = s3.get_object(Bucket="b", Key="digits", Range=text)
    assert got["Body"].read() == expected
    assert got["ContentRange"].endswith("/10")


def test_a_range_outside(gateway: Gateway):
    s3 = gateway.client()
    s3.put_object(Bucket="b", Key="digits", Body=b"0123456789")
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket="b", Key="digits", Range="bytes=10-")
    assert code(error) == "InvalidRange"


def test_conditions(gateway: Gateway):
    s3 = gateway.client()
    etag = s3.put_object(Bucket="b", Key="c", Body=b"1")["ETag"]
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket="b", Key="c", Body=b"2", IfNoneMatch="*")
    assert code(error) == "PreconditionFailed"
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket="b", Key="c", IfNoneMatch=etag)
    assert code(error) == "304"
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket="b", Key="c", IfMatch='"other"')
    assert code(error) == "PreconditionFailed"
    assert s3.get_object(Bucket="b", Key="c", IfMatch=etag)["Body"].read() == b"1"
    modified = s3.head_object(Bucket="b", Key="c")["LastModified"]
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket="b", Key="c", IfModifiedSince=modified)
    assert code(error) == "304"


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_checksums_are_held_against_the_bytes(gateway: Gateway, algorithm: str):
    s3 = gateway.client()
    field = f"Checksum{algorithm}"
    if algorithm not in ("CRC32C", "CRC64NVME"):  # boto3 computes these only with its native library
        put = s3.put_object(Bucket="b", Key="sum", Body=b"bytes", ChecksumAlgorithm=algorithm)
        assert put[field]
    size = {"CRC32": 6, "CRC32C": 6, "CRC64NVME": 11, "SHA1": 27, "SHA256": 43}[algorithm]
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket="b", Key="wrong", Body=b"bytes", **{field: "A" * size + "=" * (-size % 4)})
    assert code(error) == "BadDigest"
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket="b", Key="wrong", Body=b"bytes", ContentMD5="A" * 22 + "==")
    assert code(error) == "BadDigest"
    assert "Contents" not in s3.list_objects_v2(Bucket="b", Prefix="wrong")


def test_what_comes_back_carries_its_crc32c(gateway: Gateway):
    s3 = gateway.client()
    s3.put_object(Bucket="b", Key="sum", Body=b"bytes")
    got = s3.get_object(Bucket="b", Key="sum", ChecksumMode="ENABLED")
    assert got["ChecksumCRC32C"] == gateway.embedded.info("b", "sum", "default").crc32c


def test_a_large_file_goes_in_parts_and_comes_back(gateway: Gateway):
    s3 = gateway.client()
    data = os.urandom(21_000_000)
    s3.upload_fileobj(io.BytesIO(data), "b", "large", ExtraArgs={"Metadata": {"k": "v"}})
    head = s3.head_object(Bucket="b", Key="large")
    assert head["ETag"].endswith('-3"')
    assert head["Metadata"] == {"k": "v"}
    back = io.BytesIO()
    s3.download_fileobj("b", "large", back, Config=TransferConfig(multipart_threshold=1 << 20))
    assert back.getvalue() == data
    s3.copy({"Bucket": "b", "Key": "large"}, "b", "copy", Config=TransferConfig(multipart_threshold=1 << 20))
    assert (gateway.buckets / "b/copy").read_bytes() == data
    assert (
        gateway.embedded.info("b", "copy", "default").crc32c
        == gateway.embedded.info("b", "large", "default").crc32c
    )
    assert gateway.leftovers() == []


def test_parts_one_by_one(gateway: Gateway):
    s3 = gateway.client()
    upload = {"Bucket": "b", "Key": "parts"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    big = os.urandom(5 << 20)
    s3.upload_part(**upload, PartNumber=1, Body=b"is replaced")
    tags = {
        number: s3.upload_part(**upload, PartNumber=number, Body=body)["ETag"]
        for number, body in ((7, b"the end"), (1, big))
    }
    listed = s3.list_parts(**upload)["Parts"]
    assert [(part["PartNumber"], part["Size"]) for part in listed] == [(1, 5 << 20), (7, 7)]
    assert [one["Key"] for one in s3.list_multipart_uploads(Bucket="b")["Uploads"]] == ["parts"]
    both = [{"PartNumber": number, "ETag": tags[number]} for number in (1, 7)]

    for wrong, expected in (
        ([both[1], both[0]], "InvalidPartOrder"),
        ([both[0], {"PartNumber": 8, "ETag": tags[7]}], "InvalidPart"),
        ([{"PartNumber": 1, "ETag": tags[7]}], "InvalidPart"),
    ):
        with pytest.raises(ClientError) as error:
            s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": wrong})
        assert code(error) == expected
    done = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": both})
    assert done["ETag"].endswith('-2"')
    assert s3.get_object(Bucket="b", Key="parts")["Body"].read() == big + b"the end"
    # Whoever lost the answer asks again.
    assert s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": both})["ETag"] == done["ETag"]
    assert gateway.leftovers() == []


def test_parts_that_are_too_small_and_uploads_that_are_not_there(gateway: Gateway):
    s3 = gateway.client()
    upload = {"Bucket": "b", "Key": "small"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    tags = [s3.upload_part(**upload, PartNumber=number, Body=b"x")["ETag"] for number in (1, 2)]
    parts = [{"PartNumber": number + 1, "ETag": tag} for number, tag in enumerate(tags)]
    with pytest.raises(ClientError) as error:
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert code(error) == "EntityTooSmall"
    with pytest.raises(ClientError) as error:
        gateway.client(OTHER).upload_part(**upload, PartNumber=1, Body=b"x")
    assert code(error) == "NoSuchUpload"
    s3.abort_multipart_upload(**upload)
    for upload_id in (upload["UploadId"], "../../etc", "0" * 32):
        with pytest.raises(ClientError) as error:
            s3.upload_part(Bucket="b", Key="small", UploadId=upload_id, PartNumber=1, Body=b"x")
        assert code(error) == "NoSuchUpload"
    assert gateway.leftovers() == []


def test_lists(gateway: Gateway):
    s3 = gateway.client()
    keys = sorted(["a", "a b", "d/1", "d/2", "d/e/3", "é&<>", "z"])
    for key in keys:
        s3.put_object(Bucket="lists", Key=key, Body=key.encode())
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="lists", PaginationConfig={"PageSize": 2})
    assert [one["Key"] for page in pages for one in page["Contents"]] == keys
    pages = s3.get_paginator("list_objects").paginate(Bucket="lists", PaginationConfig={"PageSize": 2})
    assert [one["Key"] for page in pages for one in page["Contents"]] == keys
    for name in ("list_objects_v2", "list_objects"):
        pages = list(
            s3.get_paginator(name).paginate(Bucket="lists", Delimiter="/", PaginationConfig={"PageSize": 1})
        )
        assert [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", [])] == ["d/"]
        assert [one["Key"] for page in pages for one in page.get("Contents", [])] == [
            k for k in keys if "/" not in k
        ]
    assert [
        one["Key"] for one in s3.list_objects_v2(Bucket="lists", Prefix="d/", StartAfter="d/1")["Contents"]
    ] == [
        "d/2",
        "d/e/3",
    ]
    deleted = s3.delete_objects(
        Bucket="lists", Delete={"Objects": [{"Key": key} for key in (*keys, "not there", "../up")]}
    )
    assert len(deleted["Deleted"]) == len(keys) + 1
    assert [one["Key"] for one in deleted["Errors"]] == ["../up"]
    assert "Contents" not in s3.list_objects_v2(Bucket="lists")


def test_a_copy_keeps_metadata_or_replaces_it(gateway: Gateway):
    s3 = gateway.client()
    s3.put_object(Bucket="b", Key="from ü", Body=b"x", Metadata={"k": "v"})
    s3.copy_object(Bucket="b", Key="to", CopySource={"Bucket": "b", "Key": "from ü"})
    assert s3.head_object(Bucket="b", Key="to")["Metadata"] == {"k": "v"}
    s3.copy_object(
        Bucket="b",
        Key="to",
        CopySource="b/to",
        MetadataDirective="REPLACE",
        Metadata={"n": "w"},
        ContentType="a/b",
    )
    head = s3.head_object(Bucket="b", Key="to")
    assert (head["Metadata"], head["ContentType"]) == ({"n": "w"}, "a/b")
    with pytest.raises(ClientError) as error:
        s3.copy_object(Bucket="b", Key="to", CopySource="b/none")
    assert code(error) == "NoSuchKey"
    with pytest.raises(ClientError) as error:
        s3.copy_object(Bucket="b", Key="to", CopySource="b/to", CopySourceIfNoneMatch="*")
    assert code(error) == "PreconditionFailed"


def test_presigned_urls(gateway: Gateway):
    s3 = gateway.client(signature_version="s3v4")
    where = {"Bucket": "b", "Key": "signed & sent"}
    put = s3.generate_presigned_url("put_object", Params=where)
    with urllib.request.urlopen(urllib.request.Request(put, data=b"by url", method="PUT")) as answer:
        assert answer.status == 200
    get = s3.generate_presigned_url(
        "get_object", Params=where | {"ResponseContentDisposition": "attachment; filename=x"}, ExpiresIn=60
    )
    with urllib.request.urlopen(get) as answer:
        assert answer.read() == b"by url"
        assert answer.headers["content-disposition"] == "attachment; filename=x"
    assert status(get.replace("%20sent", "%20other")) == (403, "SignatureDoesNotMatch")
    assert status(get + "&response-content-type=a") == (403, "SignatureDoesNotMatch")
    later = gateway.clock
    try:
        gateway.clock = lambda: later() + 61
        assert status(get) == (403, "AccessDenied")
        gateway.clock = lambda: later() - 1000
        assert status(get) == (403, "RequestTimeTooSkewed")
    finally:
        gateway.clock = later


def status(url: str) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(url)
    text = error.value.read().decode()
    error.value.close()
    return error.value.code, text.partition("<Code>")[2].partition("</Code>")[0]


def test_who_may_not(gateway: Gateway):
    gateway.client().put_object(Bucket="b", Key="a", Body=b"x")
    gateway.client(OTHER).put_object(Bucket="theirs", Key="a", Body=b"x")
    for client, bucket, expected in (
        (gateway.client(ROOT, "wrong"), "b", "SignatureDoesNotMatch"),
        (gateway.client(ROOT._replace(id="AKIDnobody")), "b", "InvalidAccessKeyId"),
        (gateway.client(ROOT), "theirs", "AccessDenied"),
    ):
        with pytest.raises(ClientError) as error:
            client.get_object(Bucket=bucket, Key="a")
        assert code(error) == expected
    with pytest.raises(ClientError) as error:
        gateway.client().create_bucket(Bucket="theirs")
    assert code(error) == "BucketAlreadyExists"
    with pytest.raises(ClientError) as error:
        gateway.client().copy_object(Bucket="b", Key="stolen", CopySource="theirs/a")
    assert code(error) == "AccessDenied"
    assert status(f"{gateway.url}/b/a") == (403, "AccessDenied")
    assert "theirs" not in [one["Name"] for one in gateway.client().list_buckets()["Buckets"]]


def test_a_clock_that_is_off(gateway: Gateway):
    right = gateway.clock
    try:
        gateway.clock = lambda: right() + 16 * 60
        with pytest.raises(ClientError) as error:
            gateway.client().list_buckets()
    finally:
        gateway.clock = right
    # boto3 corrects its clock by the answer's Date and tries again; here the answer's is right already.
    assert code(error) == "RequestTimeTooSkewed"


CUSTOMER_KEY = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32}


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("put_object_acl", {"Key": "a", "ACL": "private"}),
        ("put_object_tagging", {"Key": "a", "Tagging": {"TagSet": []}}),
        ("get_bucket_policy", {}),
        ("get_object", {"Key": "a", "VersionId": "1"}),
        ("delete_object", {"Key": "a", "IfMatch": '"another"'}),
        ("delete_objects", {"Delete": {"Objects": [{"Key": "a", "VersionId": "1"}]}}),
        ("delete_objects", {"Delete": {"Objects": [{"Key": "a", "ETag": '"another"'}]}}),
        ("put_object", {"Key": "a", "IfMatch": '"another"'}),
        ("put_object", {"Key": "a", "ObjectLockLegalHoldStatus": "ON"}),
        ("put_object", {"Key": "a", **CUSTOMER_KEY}),
        ("create_multipart_upload", {"Key": "a", **CUSTOMER_KEY}),
        ("create_bucket", {"ObjectLockEnabledForBucket": True}),
    ],
)
def test_what_is_not_there_is_said_and_changes_nothing(gateway: Gateway, operation: str, arguments: dict):
    s3 = gateway.client()
    s3.put_object(Bucket="b", Key="a", Body=b"as it was")
    with pytest.raises(ClientError) as error:
        getattr(s3, operation)(Bucket="b", **arguments)
    assert code(error) == "NotImplemented"
    assert s3.get_object(Bucket="b", Key="a")["Body"].read() == b"as it was"


@pytest.mark.parametrize("key", ["../../etc/passwd", "a/../../x", "/abs", "a//b", "a\x01b", "x" * 300])
def test_keys_that_lead_elsewhere(gateway: Gateway, key: str):
    s3 = gateway.client()
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket="b", Key=key, Body=b"x")
    assert code(error) == "InvalidArgument"
