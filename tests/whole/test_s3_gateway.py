"""The embedded buckets through the S3 gateway, and the jobs that use them."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.running import KEY, Service, free_port, running

MOUNT = "cos://mine-1250000000.cos.ap-beijing.myqcloud.com/run:/data/run"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def service(port: int) -> Iterator[Service]:
    with running(f"[storage.s3]\nport = {port}\n") as one:
        yield one.start()


def client(port: int, secret: str = KEY.secret) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=KEY.id,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=Config(signature_version="s3v4"),
    )


def test_a_job_reads_uploaded_objects_and_its_results_can_be_downloaded(service: Service, port: int):
    s3 = client(port)
    s3.create_bucket(Bucket="mine")
    s3.put_object(Bucket="mine", Key="run/question", Body=b"6 * 7")
    service.create("job", "sh", "-c", "echo $(($(cat question))) > answer", PackageDir=[MOUNT])
    assert service.wait("job")["state"] == "succeeded"
    assert s3.get_object(Bucket="mine", Key="run/answer")["Body"].read() == b"42\n"


def test_a_bucket_by_its_full_name_at_tencent(service: Service, port: int):
    s3 = client(port)
    s3.put_object(Bucket="mine-1250000000", Key="run/question", Body=b"6 * 7")
    service.create("job", "sh", "-c", "echo $(($(cat question))) > answer", PackageDir=[MOUNT])
    assert service.wait("job")["state"] == "succeeded"
    for name in ("mine", "mine-1250000000"):
        assert s3.get_object(Bucket=name, Key="run/answer")["Body"].read() == b"42\n"
    assert [one["Name"] for one in s3.list_buckets()["Buckets"]] == ["mine"]


def test_a_wrong_secret_is_refused(service: Service, port: int):
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        client(port, "not-the-secret").list_buckets()


def test_each_port_has_its_own_api(service: Service, port: int):
    health = service.native("/whoami")
    assert health
    with pytest.raises(ClientError):
        client(service.port).list_buckets()


def test_uploads_survive_a_kill(service: Service, port: int):
    client(port).put_object(Bucket="mine", Key="kept", Body=b"x" * 100_000)
    service.kill()
    service.start()
    assert client(port).head_object(Bucket="mine", Key="kept")["ContentLength"] == 100_000
