"""gcloud itself, where it is installed: create, list, describe, cancel, stream-logs."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dialects.vertex.driving import PROJECT, Cloud
from tests.running import KEY, python_path, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not installed"),
    pytest.mark.timeout(400),
]


class Gcloud:
    def __init__(self, cloud: Cloud, home: Path) -> None:
        endpoint = cloud.service.endpoint
        (home / "token").write_text(cloud.token())
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "NO_PROXY": "127.0.0.1",
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{endpoint}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING": f"{endpoint}/",
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(home / "token"),
        }

    def __call__(self, *words: str) -> str:
        command = ["gcloud", "ai", "custom-jobs", *words, "--region=us-central1"]
        ended = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=90)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with running() as service:
        yield Cloud(service.start())


def test_a_job_from_beginning_to_end(cloud: Cloud, tmp_path: Path):
    gcloud = Gcloud(cloud, tmp_path)
    gcloud(
        "create",
        "--display-name=by-gcloud",
        "--worker-pool-spec=machine-type=n1-standard-4,container-image-uri=python:3.11",
        "--command=/bin/sh,-c",
        "--args=echo hello from gcloud; echo trouble >&2",
        "--labels=team=vision",
    )
    (job,) = json.loads(gcloud("list", "--format=json"))
    assert (job["displayName"], job["labels"]) == ("by-gcloud", {"team": "vision"})
    job_id = job["name"].rpartition("/")[2]
    cloud.wait(job["name"])
    assert "state: JOB_STATE_SUCCEEDED" in gcloud("describe", job_id)
    gcloud("cancel", job_id)
    lines = [line.split("\t") for line in gcloud("stream-logs", job_id, "--polling-interval=1").splitlines()]
    said = {(severity, task, text) for severity, _, task, text in lines}
    assert {
        ("INFO", "workerpool0-0", "hello from gcloud"),
        ("ERROR", "workerpool0-0", "trouble"),
        ("INFO", "service", "Job completed successfully."),
    } <= said


def test_a_service_account(cloud: Cloud, tmp_path: Path):
    gcloud = Gcloud(cloud, tmp_path)
    file = tmp_path / "account.json"
    words = ["keys", "create", "--project", PROJECT, "--google", "--out", str(file)]
    env = {
        "PYTHONPATH": python_path(),
        "TURNOUT_ENDPOINT": cloud.service.endpoint,
        "TURNOUT_KEY": f"{KEY.id}:{KEY.secret}",
        "HOME": str(tmp_path),
    }
    subprocess.run([sys.executable, "-m", "turnout.cli.main", *words], env=env, check=True)
    del gcloud.env["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"]
    gcloud.env["CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"] = str(file)
    # It does not go by the file's token_uri.
    gcloud.env["CLOUDSDK_AUTH_TOKEN_HOST"] = f"{cloud.service.endpoint}/token"
    json.loads(gcloud("list", "--format=json"))
