"""What a cluster cannot do is refused when the job is created, with the error of the API that the job came through."""

from collections.abc import Iterator
from typing import Any

import pytest
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.vertex import jobs
from tests.dialects.vertex.driving import Cloud as Google
from tests.running import Service, running

# A command that succeeds and prints nothing stands in for all of Slurm's. No job gets that far.
CONFIG = """
[clusters.gpu]
engine = "slurm"
command = ["true"]

[pools.pool-gpu]
cluster = "gpu"

[storage]
host_paths = ["/srv"]

[keyring]
"{name}" = {{ file = "{file}" }}
"""
KEY = "projects/p1/locations/us-central1/keyRings/ring/cryptoKeys/one"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    key = tmp_path_factory.mktemp("keys") / "one"
    key.write_text("5a" * 32 + "\n")
    with running(CONFIG.format(name=KEY, file=key)) as one:
        yield one.start()


def test_encryption_of_vertex(service: Service):
    wanted = jobs.job(spec={"persistentResourceId": "gpu"}, encryptionSpec={"kmsKeyName": KEY})
    status, code, message = Google(service).send("POST", "customJobs", wanted).error
    assert (status, code) == (501, "UNIMPLEMENTED")
    assert "cluster gpu runs no encrypted jobs: its nodes would see the data" in message


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("nfs://10.0.0.7:/data:/mnt", "'nfs://10.0.0.7/data': nodes of cluster gpu mount nothing"),
        (
            "cephfs://me:S3cret@10.0.0.7:/data:/mnt",
            "'cephfs://10.0.0.7/data': nodes of cluster gpu mount nothing",
        ),
        ("file:///srv:/mnt", "'file:///srv' is not in a directory that cluster gpu shares (none)"),
    ],
)
def test_mounts_of_tia(service: Service, source: str, shown: str):
    with pytest.raises(TencentCloudSDKException) as error:
        service.create("refused", "true", Cluster="gpu", PackageDir=[source])
    assert error.value.code == "InvalidParameter"
    assert shown in str(error.value.message)
    assert "S3cret" not in str(error.value) + service.log.read_text()


def test_volumes_of_modelarts(service: Service):
    nfs = {"nfs_server_path": "10.0.0.7:/data", "local_path": "/mnt/data"}
    spec: dict[str, Any] = {"resource": {"pool_id": "pool-gpu", "node_count": 1}, "volumes": [{"nfs": nfs}]}
    with pytest.raises(ClientRequestException) as error:
        Huawei(service).create("refused", spec=spec)
    assert error.value.error_code == "ModelArts.2858"
    assert "nodes of cluster gpu mount nothing" in str(error.value.error_msg)
