"""What is mounted where."""

from typing import Any

import pytest

from tests.dialects.vertex.jobs import HERE, container, job, package, pool, translated
from turnout.errors import Invalid, Unsupported
from turnout.job import Mount


def mounted(document: dict[str, Any], *remote: str) -> dict[str, str]:
    """Target → source."""
    place = HERE._replace(remote=lambda bucket: bucket in remote)
    return {mount.target: mount.source for mount in translated(document, place).spec.mounts}


def args(*args: str) -> dict[str, Any]:
    return container(args=list(args))


def test_every_bucket_that_is_named_is_there():
    document = job(
        container(
            command=["sh", "-c", "cat /gcs/in-1/x.csv > '/gcs/in_2/y'"],
            args=["--data=gs://in.3/dir", "gs://in4"],
            env=[{"name": "A", "value": "/gcs/in5/"}],
        ),
        package(),
        spec={"baseOutputDirectory": {"outputUriPrefix": "gs://out/run"}},
    )
    buckets = ["out", "in-1", "in_2", "in.3", "in4", "in5", "stage"]
    found = mounted(document)
    assert found.pop("/opt/packages/0") == "gs://stage/trainer-0.1.tar.gz"
    assert found == {f"/gcs/{bucket}": f"gs://{bucket}" for bucket in buckets}


@pytest.mark.parametrize(
    "text", ["gs://", "/gcs/", "gs://UPPER/x", "/gcsfuse/x", "s3://b/x", "/gcs/a..b/x", "gs://a_/x"]
)
def test_what_names_no_bucket(text: str):
    assert mounted(job(args(text))) == {}


def test_mounts_can_be_written_to():
    assert translated(job(args("gs://in"))).spec.mounts == (Mount("gs://in", "/gcs/in"),)


def test_too_many_buckets():
    new = translated(job(args(*(f"gs://bucket-{number}" for number in range(40)))))
    assert len(new.spec.mounts) == 32
    assert "the job names 40 buckets; only the first 32 are at /gcs" in new.notes


def test_of_a_real_object_store_only_what_is_named_is_copied():
    document = job(
        args(
            "/gcs/real/data/train.csv",
            "/gcs/real/data/more/",
            "gs://real/opened/by/the/program",
            "gs://here/x",
        ),
        spec={"baseOutputDirectory": {"outputUriPrefix": "gs://real/out/run"}},
    )
    assert mounted(document, "real") == {
        "/gcs/real/data": "gs://real/data",
        "/gcs/real/out/run": "gs://real/out/run",
        "/gcs/here": "gs://here",
    }
    assert mounted(job(args("/gcs/real/a/b", "/gcs/real/x.csv")), "real") == {"/gcs/real": "gs://real"}
    assert mounted(job(args("gs://real/x")), "real") == {}


NFS = {"server": "10.0.0.2", "path": "/export", "mountPoint": "data"}


def test_nfs():
    document = job(pool(nfsMounts=[NFS, NFS | {"mountPoint": "more/x"}]), pool(nfsMounts=[NFS]))
    assert mounted(document) == {
        "/mnt/nfs/data": "nfs://10.0.0.2/export",
        "/mnt/nfs/more/x": "nfs://10.0.0.2/export",
    }


@pytest.mark.parametrize("other", [{"path": "/other"}, {"mountPoint": "data/within"}])
def test_pools_share_their_mounts(other: dict[str, str]):
    with pytest.raises(Invalid) as raised:
        translated(job(pool(nfsMounts=[NFS]), pool(nfsMounts=[NFS | other])))
    assert raised.value.field == "jobSpec.workerPoolSpecs[1].nfsMounts[0].mountPoint"


def test_there_is_no_lustre():
    lustre = {"instanceIp": "10.0.0.2", "volumeHandle": "v", "filesystem": "f", "mountPoint": "d"}
    with pytest.raises(Unsupported, match="Lustre cannot be mounted here"):
        translated(job(pool(lustreMounts=[lustre])))
