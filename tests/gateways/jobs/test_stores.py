"""Programs in jobs reach buckets in real object stores by the same clients as embedded ones."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateways.jobs.test_inside import Place, open_place, words
from tests.stores import ADMIN, S3, Gcs, gcs, s3

__all__ = ["gcs", "s3"]

GOOGLE = """
import gcsfs, pandas
from google.api_core import exceptions
from google.cloud import storage
client = storage.Client()
bucket = client.bucket("far")
rows = bucket.blob("in/rows.csv")
rows.upload_from_string("a,b\\n1,2\\n", content_type="text/csv", if_generation_match=0)
rows.metadata = {"kind": "rows"}
rows.patch()
print("patched", bucket.get_blob("in/rows.csv").metadata, bucket.get_blob("in/rows.csv").content_type)
print("library", rows.download_as_text().split(), rows.download_as_bytes(start=2, end=4))
large = bucket.blob("out/large", chunk_size=1 << 20)
large.metadata = {"step": "7"}
large.upload_from_string(b"y" * (5 << 20))
found = bucket.get_blob("out/large")
print("large", found.size, found.metadata, len(found.download_as_bytes()))
bucket.copy_blob(found, bucket, "out/copy")
client.bucket("near").blob("begin").upload_from_string("x")
bucket.copy_blob(found, client.bucket("near"), "large")
bucket.blob("out/both").compose([bucket.blob("out/copy"), rows])
print("composed", bucket.get_blob("out/both").size, client.bucket("near").get_blob("large").size)
listed = client.list_blobs("far", prefix="out/", page_size=1)
print("listed", [blob.name for blob in listed])
level = client.list_blobs("far", delimiter="/")
print("level", [blob.name for blob in level], sorted(level.prefixes))
with client.batch():
    bucket.blob("out/copy").delete()
    bucket.blob("out/both").delete()
print("left", [blob.name for blob in client.list_blobs("far", prefix="out/")], bucket.blob("out/copy").exists())
def refused(name, kind, call):
    try:
        call()
    except kind as error:
        print(name, error.code, error.message)
def get(name):
    return lambda: client.bucket(name).blob("x").download_as_bytes(retry=None)
refused("object", exceptions.NotFound, get("far"))
refused("bucket", exceptions.NotFound, lambda: client.get_bucket("missing", retry=None))
refused("theirs", exceptions.Forbidden, get("theirs"))
refused("away", exceptions.ServiceUnavailable, get("away"))
refused("put-away", exceptions.ServiceUnavailable,
        lambda: client.bucket("away").blob("x").upload_from_string("x", retry=None))
refused("condition", exceptions.PreconditionFailed, lambda: rows.upload_from_string("no", if_generation_match=0))
files = gcsfs.GCSFileSystem()
with files.open("far/out/gcsfs", "wb") as file:
    file.write(b"z" * (6 << 20))
print("gcsfs", files.cat("far/in/rows.csv").split(), files.size("far/out/gcsfs"), files.ls("far/in"))
print("pandas", pandas.read_csv("gs://google/in/rows.csv").to_dict("list"))
"""

OTHERS = """
import os, subprocess, sys, boto3
from obs import ObsClient
from qcloud_cos import CosConfig, CosS3Client
client = boto3.client("s3")
client.put_object(Bucket="far", Key="s3/rows.csv", Body=b"a,b")
print("boto3", client.get_object(Bucket="far", Key="s3/rows.csv")["Body"].read())
client.upload_file(sys.executable, "far", "s3/large")
size = os.path.getsize(os.path.realpath(sys.executable))
print("large", client.head_object(Bucket="far", Key="s3/large")["ContentLength"] == size)
print("google", client.get_object(Bucket="google", Key="in/rows.csv", Range="bytes=0-2")["Body"].read())
aws = "import sys; from awscli.clidriver import main; sys.exit(main())"
done = subprocess.run([sys.executable, "-c", aws, "s3", "cp", "s3://far/s3/rows.csv", "-"], capture_output=True)
print("aws", done.returncode, done.stdout, done.stderr.decode())
obs = ObsClient(security_provider_policy="ENV", server=os.environ["OBS_ENDPOINT"])
print("obs", obs.putContent("far", "obs", "x").status, obs.getObject("far", "obs", loadStreamInMemory=True).body.buffer)
print("obs-theirs", obs.getObject("theirs", "x").errorCode)
host, _, port = os.environ["COS_ENDPOINT"].partition(":")
cos = CosS3Client(CosConfig(
    Region=os.environ["TENCENTCLOUD_REGION"], SecretId=os.environ["TENCENTCLOUD_SECRET_ID"],
    SecretKey=os.environ["TENCENTCLOUD_SECRET_KEY"], Token=os.environ["TENCENTCLOUD_TOKEN"],
    Scheme="http", IP=host, Port=int(port or 80)))
print("cos", cos.get_object("far-1250000000", "obs")["Body"].get_raw_stream().read())
print("secrets", [name for name, value in os.environ.items() if "secret-enough" in value])
"""


@pytest.fixture(scope="module", params=["private", "none"])
def place(request: pytest.FixtureRequest, s3: S3, gcs: Gcs) -> Iterator[Place]:
    bucket = f"jobs-{request.param}"
    gcs.make_bucket(bucket)
    gcs.put(bucket, "in/rows.csv", b"a,b\n1,2\n")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    stores: dict[str, dict[str, Any]] = {
        "far": s3.backing(),
        "google": gcs.backing(bucket),
        "missing": s3.backing("no-such-bucket-there"),
        "away": s3.backing(port=port),
        "theirs": s3.backing() | {"project": "other"},
    }
    with open_place(request.param, more="".join(table(*one) for one in stores.items())) as one:
        yield one


def table(name: str, fields: dict[str, Any]) -> str:
    lines = [
        f"{key} = {str(value).lower() if value is True else repr(value)}" for key, value in fields.items()
    ]
    return "\n".join((f"[storage.buckets.{name}]", *lines, ""))


def test_googles_clients(place: Place):
    found = words(place.run("google", GOOGLE))
    assert found["patched"] == "{'kind': 'rows'} text/csv"
    assert found["library"] == "['a,b', '1,2'] b'b\\n1'"
    assert found["large"] == f"{5 << 20} {{'step': '7'}} {5 << 20}"
    assert found["composed"] == f"{(5 << 20) + 8} {5 << 20}"
    assert found["listed"] == "['out/both', 'out/copy', 'out/large']"
    assert found["level"] == "[] ['in/', 'out/']"
    assert found["left"] == "['out/large'] False"
    assert (place.service.data / "buckets/near/large").stat().st_size == 5 << 20
    for name, status in (("object", 404), ("bucket", 404), ("theirs", 403), ("away", 503), ("put-away", 503)):
        assert found[name].startswith(f"{status} "), name
    for name in ("bucket", "theirs", "away", "put-away"):
        assert {"bucket": "missing", "put-away": "away"}.get(name, name) in found[name]
    assert found["condition"].startswith("412 ")
    assert found["gcsfs"] == f"[b'a,b', b'1,2'] {6 << 20} ['far/in/rows.csv']"
    assert found["pandas"] == "{'a': [1], 'b': [2]}"
    assert not (place.service.data / "buckets/far").exists()


def test_the_other_clients(place: Place):
    lines = place.run("others", OTHERS)
    found = words(lines)
    assert found["boto3"] == found["google"] == "b'a,b'"
    assert found["large"] == "True"
    assert found["aws"] == "0 b'a,b' "
    assert found["obs"] == "200 b'x'"
    assert found["obs-theirs"] == "AccessDenied"
    assert found["cos"] == "b'x'"
    assert found["secrets"] == "[]"
    assert ADMIN[1] not in "\n".join(lines)
