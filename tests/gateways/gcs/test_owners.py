"""Whose a bucket is, through the storage client and through the jobs of the same person."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from google.api_core.exceptions import Forbidden
from google.cloud import storage
from google.oauth2.credentials import Credentials

from tests.dialects.vertex.account.test_bearer import turnout
from tests.dialects.vertex.driving import Cloud
from tests.running import KEY, Service, python_path, running
from turnout.access import Key, make_token


@pytest.fixture
def open_service() -> Iterator[Service]:
    with running() as one:
        yield one.start("--no-auth")


def new_key(service: Service, project: str) -> Key:
    root = {"Authorization": f"Bearer {make_token(KEY, time.time())}"}
    made = httpx.post(f"{service.endpoint}/turnout/v1/keys", json={"project": project}, headers=root).json()
    return Key(made["id"], made["secret"], project)


def test_without_authentication_a_job_and_its_user_share_buckets(open_service: Service, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", open_service.endpoint)
    cloud = Cloud(open_service)
    job = cloud.shell("echo result > /gcs/made-by-job/out")
    cloud.wait(job["name"], "JOB_STATE_SUCCEEDED")
    with storage.Client(project="anything") as client:
        assert client.bucket("made-by-job").blob("out").download_as_bytes() == b"result\n"
        client.bucket("made-by-job").blob("in").upload_from_string("more")
        client.bucket("made-by-client").blob("in").upload_from_string("data")
    script = "cat /gcs/made-by-job/in /gcs/made-by-client/in > /gcs/made-by-client/out"
    cloud.wait(cloud.shell(script)["name"], "JOB_STATE_SUCCEEDED")
    assert (open_service.data / "buckets" / "made-by-client" / "out").read_text() == "moredata"


def test_a_key_opens_what_its_projects_jobs_made_and_nobody_else_does(service: Service, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.endpoint)
    mine, other = new_key(service, "p1"), new_key(service, "p2")
    cloud = Cloud(service, "p1", mine)
    job = cloud.shell("echo result > /gcs/of-p1-job/out")
    cloud.wait(job["name"], "JOB_STATE_SUCCEEDED")
    for key, allowed in ((mine, True), (other, False), (None, False)):
        credentials = Credentials(make_token(key, time.time())) if key else None
        with storage.Client(project="any", credentials=credentials) as client:
            blob = client.bucket("of-p1-job").blob("out")
            if allowed:
                assert blob.download_as_bytes() == b"result\n"
                continue
            with pytest.raises(Forbidden, match="belongs to another project"):
                blob.download_as_bytes()


STAGE = """
import sys
from google.cloud import aiplatform
from google.oauth2.credentials import Credentials
{credentials}
endpoint, bucket = sys.argv[1:]
aiplatform.init(
    api_endpoint=endpoint, api_transport="rest", project="p1", location="us-central1",
    staging_bucket=f"gs://{{bucket}}", credentials=credentials,
)
job = aiplatform.CustomJob.from_local_script(
    display_name="hello", script_path="task.py",
    container_uri="us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest", {argument}
)
job.submit()
print(job.resource_name)
"""
TOKEN = "credentials = Credentials({token!r})"
ACCOUNT = """
from google.oauth2 import service_account

scopes = ["https://www.googleapis.com/auth/cloud-platform"]
account = service_account.Credentials.from_service_account_file("account.json", scopes=scopes)

def new_token(request, scopes):
    account.refresh(request)
    return account.token, account.expiry

credentials = Credentials(None, refresh_handler=new_token)
"""
PASSED = "credentials=credentials"


class Staging:
    """A person of the project p1, and one of p2."""

    def __init__(self, service: Service, directory: Path) -> None:
        self.service, self.directory = service, directory
        self.key, self.other = new_key(service, "p1"), new_key(service, "p2")
        self.cloud = Cloud(service, "p1", self.key)
        (directory / "task.py").write_text("print('hello')\n")
        turnout(
            service, "keys", "create", "--project", "p1", "--google", "--out", f"{directory}/account.json"
        )

    def submit(self, bucket: str, credentials: str, argument: str) -> str:
        """The name of the job, as Google's SDK prints it."""
        env = os.environ | {
            "STORAGE_EMULATOR_HOST": self.service.endpoint,
            "GOOGLE_APPLICATION_CREDENTIALS": f"{self.directory}/account.json",
            "PYTHONPATH": python_path(),
            "NO_PROXY": "127.0.0.1",
        }
        code = STAGE.format(credentials=credentials, argument=argument)
        command = [sys.executable, "-c", code, self.service.endpoint, bucket]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=110, cwd=self.directory
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    def others_answer(self, bucket: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {make_token(self.other, time.time())}"}
        return httpx.get(f"{self.service.endpoint}/storage/v1/b/{bucket}/o", headers=headers)

    def notes(self, job: str) -> str:
        ended = self.cloud.wait(job, "JOB_STATE_SUCCEEDED")
        entries = self.cloud.entries(ended, ' resource.labels.task_name="service"')["entries"]
        return "\n".join(entry["textPayload"] for entry in entries)


@pytest.fixture
def staging(service: Service, tmp_path: Path) -> Staging:
    return Staging(service, tmp_path)


@pytest.mark.parametrize("way", ["token", "account"])
def test_a_script_is_staged_in_the_keys_project(staging: Staging, way: str):
    """As docs/storage-gcs.md says: from_local_script does not use the credentials of aiplatform.init by itself."""
    token = TOKEN.format(token=make_token(staging.key, time.time()))
    job = staging.submit(f"by-{way}", ACCOUNT if way == "account" else token, PASSED)
    answer = staging.others_answer(f"by-{way}")
    assert (answer.status_code, "belongs to another project" in answer.text) == (403, True)
    assert "every project" not in staging.notes(job)


def test_a_script_that_was_staged_without_credentials(staging: Staging):
    """The person who runs the service needs none, so the upload is not refused. The job says where its code is."""
    job = staging.submit("by-nobody", ACCOUNT, "")
    [package] = staging.others_answer("by-nobody").json()["items"]
    note = f"gs://by-nobody/{package['name']} is in a bucket that every project can read and change"
    assert note in staging.notes(job)
