"""Encrypted jobs: nothing is readable on disk, and everything through the service while the key is available.

Uses Google's own clients.
"""

import http.client
import os
import re
import signal
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.exceptions import ClientError
from google.api_core.exceptions import BadRequest, GoogleAPICallError
from google.api_core.exceptions import NotFound as Missing
from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform_v1, storage

from tests.dialects.vertex import jobs
from tests.dialects.vertex.driving import Cloud
from tests.running import IMAGES, Service, end_tree, free_port, running, supervisor_pid
from tests.running import KEY as ROOT
from tests.store import servers

KEY = "projects/p1/locations/us-central1/keyRings/ring/cryptoKeys/one"
MARKER = "marker-4711"
OUTPUT = {"outputUriPrefix": "gs://results/run"}
TRAIN = f"""
OUT=$TURNOUT_ROOT/gcs/results/run
echo {MARKER} printed; echo {MARKER} printed >&2
echo {MARKER} > $HOME/scratch
mkdir -p $OUT/model; i=0
while [ $i -lt 9000 ]; do echo "{MARKER} $i"; i=$((i+1)); done > $OUT/model/weights
"""
WEIGHTS = "".join(f"{MARKER} {number}\n" for number in range(9000)).encode()


class House(NamedTuple):
    service: Service
    cloud: Cloud
    key: Path

    def run(self, script: str, key: str = KEY, **spec: Any) -> Any:
        job = self.start(script, key, **spec)
        return self.cloud.wait(job["name"])

    def start(self, script: str, key: str = KEY, **spec: Any) -> Any:
        pool = jobs.container(command=["/bin/sh", "-c", script], env=[{"name": "SECRET", "value": MARKER}])
        fields = {"encryptionSpec": {"kmsKeyName": key}} if key else {}
        return self.cloud.create(pool, **fields, **spec)

    def printed(self, job: Any) -> list[str]:
        """Without the lines of the service itself."""
        entries = self.cloud.entries(job).get("entries", [])
        texts = [one["textPayload"] for one in entries if one["resource"]["labels"]["task_name"] != "service"]
        return [text for text in texts if not text.startswith("Task completed")]

    def readable(self) -> set[str]:
        """The files of the data directory that contain the marker."""
        return readable(self.service.data)

    def s3(self) -> Any:
        port = re.search(r"port = (\d+)", self.service.config.read_text())
        assert port
        return boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port[1]}",
            aws_access_key_id=ROOT.id,
            aws_secret_access_key=ROOT.secret,
            region_name="us-east-1",
        )

    def native(self, url: str, **headers: str) -> bytes:
        sent = {"Authorization": f"Bearer {self.cloud.token()}"} | headers
        whole = f"{self.service.endpoint}/turnout/v1/object?url={url}"
        with urllib.request.urlopen(urllib.request.Request(whole, headers=sent), timeout=30) as answer:
            return answer.read()

    def bucket(self) -> storage.Bucket:
        client = storage.Client(
            project="p1",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self.service.endpoint},
        )
        client._http.headers["Authorization"] = f"Bearer {self.cloud.token()}"
        return client.bucket("results")


def readable(place: Path) -> set[str]:
    found: set[str] = set()
    for directory, _, names in os.walk(place):
        for path in (Path(directory, name) for name in names):
            # The supervisor moves empty directories about.
            with suppress(FileNotFoundError):
                if stat.S_ISREG(path.lstat().st_mode) and MARKER.encode() in path.read_bytes():
                    found.add(str(path.relative_to(place)))
    return found


@pytest.fixture(params=["bubblewrap", "none"])
def house(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    key = tmp_path / "key"
    key.write_text(os.urandom(32).hex() + "\n")
    config = f"""
[engines.local]
sandbox = "{request.param}"
[storage.s3]
port = {free_port()}
[keyring]
"{KEY}" = {{ file = "{key}" }}
"""
    with running(config + IMAGES) as service:
        yield House(service.start(), Cloud(service, project="default"), key)


def test_nothing_readable_is_left(house: House):
    job = house.run(TRAIN, **_output())
    assert job["state"] == "JOB_STATE_SUCCEEDED", house.printed(job)
    assert house.readable() == set()
    assert job["encryptionSpec"] == {"kmsKeyName": KEY}
    env = job["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"]
    assert env == [{"name": "SECRET", "value": MARKER}]
    assert house.printed(job) == [f"{MARKER} printed"] * 2
    blob = house.bucket().get_blob("run/model/weights")
    assert blob is not None
    assert blob.size == len(WEIGHTS)
    assert blob.download_as_bytes() == WEIGHTS, "its md5 and crc32c are checked by the client"
    assert blob.download_as_bytes(start=100_000, end=100_010) == WEIGHTS[100_000:100_011]
    place = {"Bucket": "results", "Key": "run/model/weights"}
    assert house.s3().get_object(**place)["Body"].read() == WEIGHTS
    assert house.s3().get_object(**place, Range="bytes=-7")["Body"].read() == WEIGHTS[-7:]
    assert house.native("gs://results/run/model/weights") == WEIGHTS
    assert house.native("gs://results/run/model/weights", Range="bytes=5-9") == WEIGHTS[5:10]
    assert house.readable() == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", [KEY, ""])
def test_nothing_readable_is_left_in_postgresql(tmp_path: Path, name: str):
    """Neither in its tables nor in its write-ahead log. For a job without a key, the marker is there."""
    key = tmp_path / "key"
    key.write_text(os.urandom(32).hex())
    with servers.running() as postgres:
        url = postgres.database()
        with running(
            f'[store]\nurl = "{url}"\n[keyring]\n"{KEY}" = {{ file = "{key}" }}\n{IMAGES}'
        ) as service:
            house = House(service.start(), Cloud(service, project="default"), key)
            job = house.run(f"{TRAIN}exit 3", name, **_output())
            assert job["state"] == "JOB_STATE_FAILED"
            assert MARKER in job["error"]["message"]
            assert house.printed(job) == [f"{MARKER} printed"] * 2
            assert bool(readable(Path(url.partition("host=")[2]))) == (not name)
            assert bool(house.readable()) == (not name)


def test_logs_and_workspace_without_a_sandbox_too(house: House):
    job = house.run(f"echo {MARKER}; echo {MARKER} > $HOME/x; exit 3")
    assert job["state"] == "JOB_STATE_FAILED"
    assert MARKER in job["error"]["message"], "which ends with the log's last lines"
    assert house.readable() == set()


def test_while_it_runs_only_its_workspace_is_readable(house: House):
    job = house.start(f"echo {MARKER}; echo {MARKER} > $HOME/mine; echo ready; sleep 1000")
    _until(lambda: "ready" in house.printed(job))
    readable = house.readable()
    assert {path.rpartition("/")[2] for path in readable} == {"mine"}
    house.cloud.send("POST", f"/v1/{job['name']}:cancel", {})
    assert house.cloud.wait(job["name"])["state"] == "JOB_STATE_CANCELLED"
    assert house.readable() == set()


@pytest.mark.slow
def test_a_restarted_service_continues_an_encrypted_job(house: House):
    job = house.start(f"{TRAIN}echo ready; sleep 3; echo after", **_output())
    _until(lambda: "ready" in house.printed(job))
    assert house.service.process is not None
    os.kill(house.service.process.pid, signal.SIGKILL)
    house.service.process.wait()
    house.service.start()
    assert house.cloud.wait(job["name"])["state"] == "JOB_STATE_SUCCEEDED"
    assert house.printed(job)[-1] == "after"
    assert house.bucket().blob("run/model/weights").download_as_bytes() == WEIGHTS
    assert house.readable() == set()


def test_nothing_readable_is_left_after_everything_was_killed(house: House):
    """The service, the supervisor and the program, as when the power fails: the next service clears away what they
    left.
    """
    once = {"scheduling": {"disableRetries": True}, "baseOutputDirectory": OUTPUT}
    job = house.start(f"{TRAIN}echo ready; sleep 1000", spec=once)
    _until(lambda: "ready" in house.printed(job))
    supervisor = supervisor_pid(house.service.data)
    assert supervisor
    house.service.kill()
    end_tree(supervisor)
    assert house.readable(), "it ran"
    house.service.start()
    assert house.cloud.wait(job["name"])["state"] == "JOB_STATE_FAILED"
    assert house.printed(job)[-1] == "ready"
    assert house.readable() == set()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["control.decided", "control.committed", "control.acted", "engine.sent"])
def test_killed_while_it_is_created(house: House, place: str):
    """The job exists completely or not at all, and is never readable."""
    house.service.terminate()
    house.service.start(TURNOUT_KILL_AT=place, wait=False)
    with suppress(OSError, http.client.HTTPException):
        house.service.wait_until_up()
        house.run(f"echo {MARKER}", **_output())
    house.service.wait_for_death()
    assert house.readable() == set()
    house.service.start()
    jobs = house.cloud.send("GET", "customJobs").body.get("customJobs", [])
    assert len(jobs) == (place != "control.decided")
    for job in jobs:
        assert house.cloud.wait(job["name"])["state"] == "JOB_STATE_SUCCEEDED"
        assert house.printed(job) == [MARKER]
    assert house.readable() == set()


def test_other_jobs_and_clients_read_its_results_decrypted(house: House):
    assert house.run(TRAIN, **_output())["state"] == "JOB_STATE_SUCCEEDED"
    for key in (KEY, ""):
        job = house.run("cd $TURNOUT_ROOT/gcs/results/run/model; tail -n 1 weights; wc -c < weights", key)
        assert house.printed(job) == [f"{MARKER} 8999", str(len(WEIGHTS))]
    _until(lambda: not any((house.service.data / "copies").iterdir()))


def test_an_unknown_key_is_refused(house: House):
    other = KEY.replace("one", "another")
    with pytest.raises(BadRequest, match=r"encryptionSpec.kmsKeyName.*another"):
        house.cloud.client().create_custom_job(
            parent=house.cloud.parent,
            custom_job=aiplatform_v1.CustomJob(
                display_name="x",
                job_spec={
                    "worker_pool_specs": [
                        {
                            "container_spec": {"image_uri": "gcr.io/a/b", "command": ["true"]},
                            "machine_spec": {"machine_type": "n1-standard-4"},
                        }
                    ]
                },
                encryption_spec={"kms_key_name": other},
            ),
        )


def test_after_the_key_is_destroyed(house: House):
    job = house.run(f"echo {MARKER}", **_output())
    failed = house.run("exit 3")
    plain = house.run("echo plain", key="")
    house.key.unlink()
    client = house.cloud.client()
    with pytest.raises(BadRequest, match=KEY):
        client.get_custom_job(name=job["name"])
    listed = {one.name: one for one in client.list_custom_jobs(parent=house.cloud.parent)}
    assert listed[plain["name"]].display_name
    locked: Any = listed[job["name"]]
    assert "error" not in locked
    assert KEY in listed[failed["name"]].error.message
    assert (locked.display_name, locked.state.name) == (job["displayName"], job["state"])
    assert locked.create_time < locked.start_time <= locked.end_time
    assert not locked.job_spec.worker_pool_specs
    request = {"parent": house.cloud.parent, "filter": f'display_name="{job["displayName"]}"', "page_size": 1}
    pages = list(client.list_custom_jobs(request | {"read_mask": "name,state"}).pages)
    assert [one.name for page in pages for one in page.custom_jobs] == list(listed)
    assert not any(one.error.message for page in pages for one in page.custom_jobs)
    told = house.cloud.entries(job)
    assert MARKER not in str(told)
    with pytest.raises(AssertionError, match="FAILED_PRECONDITION"):
        house.start("true")
    assert house.run("true", key="")["state"] == "JOB_STATE_SUCCEEDED"
    client.delete_custom_job(name=job["name"]).result()
    with pytest.raises(Missing):
        client.get_custom_job(name=job["name"])


def test_objects_after_the_key_is_destroyed(house: House):
    assert house.run(TRAIN, **_output())["state"] == "JOB_STATE_SUCCEEDED"
    house.key.unlink()
    blob = house.bucket().get_blob("run/model/weights")
    assert blob is not None
    assert blob.size == len(WEIGHTS)
    with pytest.raises(GoogleAPICallError, match=KEY):
        blob.download_as_bytes()
    with pytest.raises(ClientError, match=r"KMS\.NotFoundException"):
        house.s3().get_object(Bucket="results", Key="run/model/weights")
    with pytest.raises(urllib.error.HTTPError, match="409"):
        house.native("gs://results/run/model/weights")
    blob.delete()
    assert house.bucket().get_blob("run/model/weights") is None


def test_nothing_of_a_search_can_be_read_either(house: House):
    script = f'echo {MARKER} printed $1; echo "TURNOUT_METRIC {MARKER}=1.5"; [ "$1" != --kind={MARKER}-b ]'
    client = house.cloud.client()
    made = _tuning_job(house, script, max_failed_trial_count=5)
    house.service.native(f"/jobs/{made.name.rpartition('/')[2]}/wait?timeout=60")
    job: Any = client.get_hyperparameter_tuning_job(name=made.name)
    assert job.state.name == "JOB_STATE_SUCCEEDED", job
    assert {trial.parameters[0].value for trial in job.trials} == {f"{MARKER}-a", f"{MARKER}-b"}
    assert [
        trial.final_measurement.metrics[0].metric_id
        for trial in job.trials
        if trial.state.name == "SUCCEEDED"
    ]
    assert house.readable() == set()
    house.key.unlink()
    with pytest.raises(BadRequest, match=KEY):
        client.get_hyperparameter_tuning_job(name=made.name)


def test_a_search_whose_key_is_destroyed_meanwhile_fails(house: House):
    made = _tuning_job(house, f"echo {MARKER}; sleep 1000")
    job = made.name.rpartition("/")[2]
    house.service.native(f"/jobs/{job}/wait?for=started&timeout=60")
    house.service.kill()
    house.key.unlink()
    house.service.start()
    ended = house.service.native(f"/jobs/{job}/wait?timeout=60")
    assert (ended["state"], ended["reason"]) == ("failed", "refused by the engine")
    with urllib.request.urlopen(f"{house.service.endpoint}/metrics", timeout=30) as answer:
        assert b'turnout_jobs{state="running"} 0\n' in answer.read()


def _tuning_job(house: House, script: str, **fields: Any) -> Any:
    pool = {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "replica_count": 1,
        "container_spec": {"image_uri": "python:3", "command": ["/bin/sh", "-c", script, "sh"]},
    }
    job: Any = {
        "display_name": "search",
        "study_spec": {
            "metrics": [{"metric_id": MARKER, "goal": "MAXIMIZE"}],
            "parameters": [
                {"parameter_id": "kind", "categorical_value_spec": {"values": [f"{MARKER}-a", f"{MARKER}-b"]}}
            ],
            "algorithm": "GRID_SEARCH",
        },
        "max_trial_count": 2,
        "parallel_trial_count": 1,
        "trial_job_spec": {"worker_pool_specs": [pool]},
        "encryption_spec": {"kms_key_name": KEY},
    }
    return house.cloud.client().create_hyperparameter_tuning_job(
        parent=house.cloud.parent, hyperparameter_tuning_job=job | fields
    )


def _output() -> dict[str, Any]:
    return {"spec": {"baseOutputDirectory": OUTPUT}}


def _until(reached: Any) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)
