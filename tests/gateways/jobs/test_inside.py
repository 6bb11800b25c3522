"""Programs in jobs reach the buckets of their project, by the clouds' own clients with no code changed."""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateways.jobs.client import CLIENT
from tests.running import KEY, Service, reachable_directory, running
from tests.whole.test_frameworks import mounted
from turnout.access import make_token

PLACES = ("private", "host", "none")

GOOGLE = """
import google.auth, pandas, gcsfs
from google.auth.transport.requests import Request
from google.cloud import storage
credentials, project = google.auth.default()
credentials.refresh(Request())
print("account", credentials.service_account_email, project)
client = storage.Client()
bucket = client.bucket("data")
print("library", bucket.blob("in/rows.csv").download_as_text().split())
bucket.blob("out/library").upload_from_string("x" * 100)
large = bucket.blob("out/large", chunk_size=1 << 20)
large.upload_from_string(b"y" * (5 << 20))
print("listed", sorted(blob.name for blob in client.list_blobs("data", prefix="out/")))
files = gcsfs.GCSFileSystem()
with files.open("data/out/gcsfs", "wb") as file:
    file.write(b"z" * (6 << 20))
print("gcsfs", files.cat("data/in/rows.csv").split(), files.size("data/out/gcsfs"))
print("pandas", pandas.read_csv("gs://data/in/rows.csv").to_dict("list"))
"""

S3 = """
import boto3, subprocess, sys
client = boto3.client("s3")
print("boto3", client.get_object(Bucket="data", Key="in/rows.csv")["Body"].read().split())
client.upload_file(sys.executable, "data", "out/boto3")
print("buckets", [bucket["Name"] for bucket in client.list_buckets()["Buckets"]])
import urllib.request
url = client.generate_presigned_url("get_object", {"Bucket": "data", "Key": "in/rows.csv"})
print("presigned", urllib.request.urlopen(url).read().split())
aws = "import sys; from awscli.clidriver import main; sys.exit(main())"
done = subprocess.run([sys.executable, "-c", aws, "s3", "cp", "s3://data/in/rows.csv", "-"], capture_output=True)
print("aws", done.returncode, done.stdout.split(), done.stderr.decode())
"""

OBS_AND_COS = """
import os
from obs import ObsClient
from qcloud_cos import CosConfig, CosS3Client
obs = ObsClient(os.environ["ACCESS_KEY_ID"], os.environ["SECRET_ACCESS_KEY"],
                server=os.environ["S3_ENDPOINT"], security_token=os.environ["SECURITY_TOKEN"])
print("obs", obs.getObject("data", "in/rows.csv", loadStreamInMemory=True).body.buffer.split())
print("put", obs.putContent("data", "out/obs", "x").status)
ambient = ObsClient(security_provider_policy="ENV", server=os.environ["OBS_ENDPOINT"])
print("ambient", ambient.headObject("data", "out/obs").status)
host, _, port = os.environ["COS_ENDPOINT"].partition(":")
cos = CosS3Client(CosConfig(
    Region=os.environ["TENCENTCLOUD_REGION"], SecretId=os.environ["TENCENTCLOUD_SECRET_ID"],
    SecretKey=os.environ["TENCENTCLOUD_SECRET_KEY"], Token=os.environ["TENCENTCLOUD_TOKEN"],
    Scheme="http", IP=host, Port=int(port or 80)))
print("cos", cos.get_object("data-1250000000", "in/rows.csv")["Body"].get_raw_stream().read().split())
cos.put_object(Bucket="data-1250000000", Key="out/cos", Body=b"x")
"""


class Place:
    """A service whose jobs find the packages of this environment."""

    def __init__(self, service: Service, packages: str) -> None:
        self.service = service
        self.packages = packages

    def start(self, name: str, program: str, **fields: Any) -> None:
        path = f"PYTHONPATH={self.packages}"
        self.service.create(name, "env", path, "/usr/bin/python3", "-u", "-c", program, **fields)

    def run(self, name: str, program: str, **fields: Any) -> list[str]:
        self.start(name, program, **fields)
        job = self.service.wait(name)
        lines = [one.Log for one in self.service.logs(name)]
        assert job["state"] == "succeeded", "\n".join(lines)
        return lines


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with open_place(request.param) as one:
        one.service.put("gs://data/in/rows.csv", "a,b\n1,2\n")
        yield one


@contextmanager
def open_place(kind: str, more: str = "") -> Iterator[Place]:
    """`kind`: the network of jobs; `none`: no sandbox."""
    with reachable_directory() as directory:
        site = next(Path(path) for path in sys.path if path.endswith("site-packages"))
        with mounted(site, directory / "packages") as packages:
            engine = 'sandbox = "none"' if kind == "none" else f'network = "{kind}"'
            mounts = f'[runtimes."tia-1.7.0"]\nmounts = {{ "/opt/packages" = "{packages}" }}\n'
            with running(f"[engines.local]\n{engine}\n{more}{'' if kind == 'none' else mounts}") as service:
                yield Place(service.start(), str(packages) if kind == "none" else "/opt/packages")


def words(lines: list[str]) -> dict[str, str]:
    """The rest of each line by its first word."""
    return {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}


def test_googles_clients(place: Place):
    found = words(place.run("google", GOOGLE))
    job = place.service.native("/jobs/google")["id"]
    assert found["account"] == f"job-{job}@default.iam.gserviceaccount.com default"
    assert found["library"] == "['a,b', '1,2']"
    assert found["listed"] == "['out/large', 'out/library']"
    assert found["gcsfs"] == f"[b'a,b', b'1,2'] {6 << 20}"
    assert found["pandas"] == "{'a': [1], 'b': [2]}"
    assert (place.service.data / "buckets/data/out/large").stat().st_size == 5 << 20


def test_the_clients_of_s3(place: Place):
    found = words(place.run("s3", S3))
    assert found["boto3"] == found["presigned"] == "[b'a,b', b'1,2']"
    assert found["buckets"] == "['data']"
    assert found["aws"] == "0 [b'a,b', b'1,2'] "
    assert (place.service.data / "buckets/data/out/boto3").stat().st_size > 1 << 20


def test_the_clients_of_obs_and_cos(place: Place):
    found = words(place.run("obs", OBS_AND_COS))
    assert found["obs"] == found["cos"] == "b'a,b\\n1,2\\n'" or "a,b" in found["obs"]
    assert (found["put"], found["ambient"]) == ("200", "200")
    assert (place.service.data / "buckets/data/out/cos").read_bytes() == b"x"


def test_the_metadata_server(place: Place):
    program = (
        CLIENT
        + """
print("project", *metadata("project/project-id"))
print("email", *metadata("instance/service-accounts/default/email"))
print("universe", *metadata("universe/universe-domain"))
print("accounts", *metadata("instance/service-accounts/?recursive=true"))
print("unknown", metadata("instance/disks")[0])
print("flavor", metadata("project/project-id", {})[0])
print("forwarded", metadata("project/project-id", GOOGLE | {"X-Forwarded-For": "1.2.3.4"})[0])
"""
    )
    lines = place.run("metadata", program)
    found = words(lines)
    assert found["project"] == "200 default"
    assert found["universe"] == "200 googleapis.com"
    assert "devstorage" in found["accounts"]
    assert (found["unknown"], found["flavor"], found["forwarded"]) == ("404", "403", "403")


def test_variables_of_the_user_win(place: Place):
    program = "import os; print('aws', *sorted(name for name in os.environ if name.startswith('AWS_')))"
    lines = place.run("own", program + "; print('project', os.environ['GOOGLE_CLOUD_PROJECT'])")
    assert "AWS_SESSION_TOKEN" in words(lines)["aws"]
    document = {
        "displayName": "own key",
        "jobSpec": {"workerPoolSpecs": [{
            "machineSpec": {"machineType": "n1-standard-4"},
            "replicaCount": 1,
            "containerSpec": {
                "imageUri": "python:3.11",
                "command": ["python", "-c", program],
                "env": [{"name": "AWS_ACCESS_KEY_ID", "value": "mine"}],
            },
        }]},
    }  # fmt: skip
    path = "/v1/projects/default/locations/us-central1/customJobs"
    created = json.loads(call(place.service, path, document))
    job = place.service.native(f"/jobs/{created['name'].rpartition('/')[2]}/wait?for=ended&timeout=60")
    assert job["state"] == "succeeded"
    logs = call(place.service, f"/turnout/v1/jobs/{job['id']}/logs").decode()
    assert "aws AWS_ACCESS_KEY_ID" in logs
    assert "AWS_SECRET_ACCESS_KEY" not in logs


def call(service: Service, path: str, document: object = None) -> bytes:
    """GET, or POST of the document."""
    request = urllib.request.Request(
        service.endpoint + path,
        json.dumps(document).encode() if document else None,
        {"Authorization": f"Bearer {make_token(KEY, time.time())}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read()
