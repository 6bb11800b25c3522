"""Encrypted jobs and the buckets of their project: what they read is decrypted, and no key of theirs is on disk."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.vertex import jobs
from tests.dialects.vertex.driving import Cloud
from tests.gateways.jobs.client import CLIENT
from tests.gateways.jobs.test_refused import contents, found_in, key_of, release, until
from tests.running import IMAGES, Service, running

KEY = "projects/p1/locations/us-central1/keyRings/ring/cryptoKeys/one"
MARKER = b"marker-4711"
SAVE = 'mkdir -p "$TURNOUT_ROOT/gcs/sealed"; printf "%s" marker-4711 > "$TURNOUT_ROOT/gcs/sealed/x"'
PROGRAM = (
    CLIENT
    + """
print("sealed", read("sealed", "x", token())[1], flush=True)
print("written", write("plain", "y", "uploaded", token())[0], flush=True)
while read("data", "go", token())[0] != 200:
    time.sleep(0.1)
"""
)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    key = tmp_path / "key"
    key.write_text(os.urandom(32).hex())
    with running(f'[keyring]\n"{KEY}" = {{ file = "{key}" }}\n{IMAGES}') as one:
        yield one.start()


def create(cloud: Cloud, *command: str, **spec: Any) -> Any:
    pool = jobs.container(command=list(command))
    return cloud.create(pool, encryptionSpec={"kmsKeyName": KEY}, **spec)


def test_an_encrypted_job_and_its_buckets(service: Service):
    cloud = Cloud(service, project="default")
    output = {"outputUriPrefix": "gs://sealed"}
    saved = create(cloud, "/bin/sh", "-c", SAVE, spec={"baseOutputDirectory": output})
    assert cloud.wait(saved["name"])["state"] == "JOB_STATE_SUCCEEDED"
    stored = service.data / "buckets/sealed/x"
    assert MARKER not in stored.read_bytes()
    service.put("gs://data/x", "hello")
    service.put("gs://plain/x", "hello")
    made = create(cloud, "python3", "-u", "-c", PROGRAM)
    try:
        until(lambda: any("written" in line for line in printed(cloud, made)))
        assert {"sealed marker-4711", "written 200"} <= set(printed(cloud, made))
        secrets = [part.encode() for part in key_of(service, made["name"].rpartition("/")[2])[1:]]
        files = [path for path in service.data.rglob("*") if path.is_file()]
        assert not [path for path in (*files, service.log) if found_in(contents(path), secrets)]
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            assert not found_in(contents(process), secrets), process
    finally:
        release(service)
    assert cloud.wait(made["name"])["state"] == "JOB_STATE_SUCCEEDED"
    # What a program uploads is encrypted by nobody, as docs/encryption.md says.
    assert (service.data / "buckets/plain/y").read_text() == "uploaded"


def printed(cloud: Cloud, job: Any) -> list[str]:
    return [one["textPayload"] for one in cloud.entries(job).get("entries", [])]
