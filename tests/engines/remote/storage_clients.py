"""Buckets in jobs on clusters: a program with the clouds' clients and moxing, and what has to be true around it."""

import contextlib
import json
import shlex
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from tests.dialects.modelarts.driving import Cloud
from tests.gateways.jobs.client import CLIENT
from tests.running import KEY, Service
from turnout.access import JobKeys, Key, Keys, make_token
from turnout.access.job_keys import JobKey, open_secret
from turnout.job import Attempt

GOOGLE = """
from google.cloud import storage
bucket = storage.Client().bucket("data")
print("google", bucket.blob("in/rows.csv").download_as_text().split())
bucket.blob("out/google").upload_from_string("by google's client")
"""
BOTO3 = """
import boto3
s3 = boto3.client("s3")
print("boto3", s3.get_object(Bucket="data", Key="in/rows.csv")["Body"].read().split())
s3.put_object(Bucket="data", Key="out/boto3", Body=b"by boto3")
"""
MOXING = """
import tempfile
import moxing as mox
local = tempfile.mkdtemp()
mox.file.copy_parallel("obs://data/in", local + "/data")
with mox.file.File("obs://data/in/rows.csv", "r") as file:
    columns = file.readline().strip()
rows = [list(map(int, line.split(","))) for line in open(local + "/data/rows.csv").readlines()[1:]]
os.mkdir(local + "/model")
with open(local + "/model/model.json", "w") as file:
    json.dump({"columns": columns, "sum": sum(map(sum, rows))}, file)
mox.file.copy_parallel(local + "/model", "s3://data/out/model")
print("moxing", mox.file.read("s3://data/out/model/model.json"))
"""
METADATA = """
server, _, secret = os.environ["GCE_METADATA_HOST"].partition("/")
path = "computeMetadata/v1/instance/service-accounts/default/token"
wrong = secret[:-1] + ("0" if secret[-1] != "0" else "1")
paths = f"{secret}/{path}", path, f"job-metadata/{path}", f"{wrong}/{path}"
answers = [ask(f"http://{server}/{one}", GOOGLE)[0] for one in paths]
print("metadata", answers)
print("foreign", read("foreign", "x", token())[0], write("foreign", "y", "z", token())[0])
bearer = {"Authorization": f"Bearer {token()}"}
print("jobs", ask(os.environ["API_ENDPOINT_OVERRIDE"] + "/turnout/v1/jobs", bearer)[0])
print("ready", flush=True)
while read("data", "go", token())[0] != 200:
    time.sleep(0.1)
"""
PROGRAM = CLIENT + GOOGLE + BOTO3 + MOXING + METADATA


COPY = json.dumps({"columns": "a,b", "sum": 3})


class Where(NamedTuple):
    service: Service
    pool: str
    """The name of the cluster in ModelArts."""
    packages: str
    """Where programs on its nodes find the packages of this environment."""
    files: tuple[Path, ...] = ()
    """Directories in which the cluster and its runners keep files."""


def site_packages() -> str:
    """The packages of this environment, for nodes that share this machine's files."""
    return next(path for path in sys.path if path.endswith("site-packages"))


def check_clients(where: Where) -> None:
    service = where.service
    service.put("gs://data/in/rows.csv", "a,b\n1,2\n")
    (service.data / "buckets/data/go").unlink(missing_ok=True)
    service.put("gs://foreign/x", "secret", _stranger(service))
    huawei = Cloud(service)
    command = f"PYTHONPATH={where.packages}:$PYTHONPATH exec python3 -u -c {shlex.quote(PROGRAM)}"
    spec = {"resource": {"pool_id": where.pool, "node_count": 1}}
    made = huawei.create("clients", command, spec=spec).metadata.id
    try:
        huawei.wait_for(made, "\nready", seconds=120)
        _check_lines(huawei.log(made))
        key = _key(service)
        assert read_with(service, key.token) == 200
        _check_secrets(where, key)
    finally:
        service.put("gs://data/go", "")
    job = service.wait("clients", timeout=120)
    assert job["state"] == "succeeded", huawei.log(made)
    bucket = service.data / "buckets/data/out"
    assert (bucket / "google").read_text() == "by google's client"
    assert (bucket / "boto3").read_text() == "by boto3"
    assert (bucket / "model/model.json").read_text() == COPY
    # The keys end with the job.
    assert read_with(service, key.token) in (401, 403)
    metadata = f"/job-metadata/{key.address}/computeMetadata/v1/project/project-id"
    assert _status(service.endpoint + metadata, {"Metadata-Flavor": "Google"}) == 403


def read_with(service: Service, token: str) -> int:
    return _status(
        f"{service.endpoint}/storage/v1/b/data/o/in%2Frows.csv", {"Authorization": f"Bearer {token}"}
    )


def _stranger(service: Service) -> Key:
    """A key of another project."""
    request = urllib.request.Request(
        f"{service.endpoint}/turnout/v1/keys",
        b'{"project": "strangers"}',
        {"Authorization": f"Bearer {make_token(KEY, time.time())}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        made = json.load(reply)
    return Key(made["id"], made["secret"], "strangers")


def _key(service: Service) -> JobKey:
    """The key of the job, made as the service makes it."""
    job = int(service.native("/jobs/clients")["id"])
    return JobKeys(Keys(KEY), open_secret(service.data / "job-secret")).make(Attempt(job, 1))


def _check_lines(log: str) -> None:
    """The rest of each line by its first word."""
    said = {line.partition(" ")[0]: line.partition(" ")[2] for line in log.splitlines()}
    assert said["google"] == "['a,b', '1,2']"
    assert said["boto3"] == "[b'a,b', b'1,2']"
    assert said["moxing"] == COPY
    assert said["metadata"] == "[200, 403, 403, 403]", "only the address with the secret of the job answers"
    assert said["foreign"] == "403 403"
    assert said["jobs"] in ("401", "403", "404"), "the token opens nothing but buckets"


def _check_secrets(where: Where, key: JobKey) -> None:
    """No key of the job is in a file, a command line or an answer, while it runs."""
    secrets = [part.encode() for part in (key.secret, key.session)]
    secrets += [text.rpartition(".")[2].encode() for text in (key.token, key.address)]
    service = where.service
    job = service.native("/jobs/clients")["id"]
    for path in (f"/jobs/{job}", f"/jobs/{job}/explain", f"/jobs/{job}/logs/lines", "/audit", "/clusters"):
        text = json.dumps(service.native(path)).encode()
        assert not any(secret in text for secret in secrets), path
    roots = (service.data, *where.files)
    files = [path for root in roots for path in root.rglob("*") if path.is_file()]
    for path in (*files, service.log, *Path("/proc").glob("[0-9]*/cmdline")):
        with contextlib.suppress(OSError):
            text = path.read_bytes()
            assert not any(secret in text for secret in secrets), path
    assert len(files) > 5


def _status(url: str, headers: dict[str, str]) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
