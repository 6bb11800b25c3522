"""Buckets read from inside a job by the clouds' storage clients, compared with the same clients at SeaweedFS and
fake-gcs-server outside of a job."""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.floor import Floor
from bench.service import Service, running
from bench.table import Row, Table
from tests.stores import ADMIN, fake_gcs, seaweed
from tests.whole.test_frameworks import mounted

PYTHON = "/usr/bin/python3"
PACKAGES = "/opt/packages"
PROGRAM = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
client, step, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
SMALL, B = b"x" * 4096, f"bench-{client}"
class Nothing:
    def write(self, data): return len(data)
    def tell(self): return 0
    def flush(self): pass
if client == "boto3":
    import boto3
    from botocore.config import Config
    s3 = boto3.client("s3", config=Config(max_pool_connections=16))
    def make(): s3.create_bucket(Bucket=B)
    def put(name, data): s3.put_object(Bucket=B, Key=name, Body=data)
    def put_large(path): s3.upload_file(path, B, "large")
    def read_large():
        body = s3.get_object(Bucket=B, Key="large")["Body"]
        return sum(len(piece) for piece in body.iter_chunks(1 << 20))
    def names():
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=B, Prefix="small/")
        return [one["Key"] for page in pages for one in page["Contents"]]
    def read(name): return len(s3.get_object(Bucket=B, Key=name)["Body"].read())
else:
    import requests
    from google.cloud import storage
    gcs = storage.Client(project="bench")
    adapter = requests.adapters.HTTPAdapter(pool_maxsize=16)
    gcs._http.mount("http://", adapter)
    bucket = gcs.bucket(B)
    def make(): gcs.create_bucket(B)
    def put(name, data): bucket.blob(name).upload_from_string(data)
    def put_large(path): bucket.blob("large").upload_from_filename(path)
    def read_large():
        bucket.blob("large").download_to_file(Nothing())
        return size
    def names(): return [blob.name for blob in gcs.list_blobs(B, prefix="small/")]
    def read(name): return len(bucket.blob(name).download_as_bytes())
if step == "fill":
    make()
    with open("/tmp/large", "wb") as file:
        piece = os.urandom(1 << 20)
        for _ in range(size >> 20): file.write(piece)
    put_large("/tmp/large")
    os.unlink("/tmp/large")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: put(f"small/{number:05}", SMALL), range(count)))
    print(json.dumps({}))
else:
    began = time.perf_counter()
    assert read_large() == size
    large = time.perf_counter()
    found = names()
    listed = time.perf_counter()
    assert len(found) == count
    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(read, found)) == count * len(SMALL)
    done = time.perf_counter()
    print(json.dumps({"read": size / (large - began) / (1 << 20), "small": count / (done - large),
                      "list": count / (listed - large)}))
"""
MEASURES = (
    ("read", "reads {megabytes} MB in one object", "MB/s"),
    ("small", "lists and reads {count} objects of 4 KB", "/s"),
)

Run = Callable[[str, str], dict[str, float]]
"""Client and step."""


def s3(table: Table, directory: Path, floor: Floor) -> None:
    (directory / "weed").mkdir()
    with seaweed(directory / "weed") as weed:
        env = {"AWS_ENDPOINT_URL": weed.endpoint, "AWS_DEFAULT_REGION": "us-east-1"}
        env |= {"AWS_ACCESS_KEY_ID": ADMIN[0], "AWS_SECRET_ACCESS_KEY": ADMIN[1]}
        _measure(table, directory, "boto3", "SeaweedFS", env)


def gcs(table: Table, directory: Path, floor: Floor) -> None:
    (directory / "fake").mkdir()
    with fake_gcs(directory / "fake") as fake:
        env = {"STORAGE_EMULATOR_HOST": fake.endpoint}
        _measure(table, directory, "google-cloud-storage", "fake-gcs-server", env)


def _measure(table: Table, directory: Path, client: str, peer: str, env: dict[str, str]) -> None:
    """`env`: for the client of the peer."""
    megabytes, count, rounds = (256, 1000, 1) if table.quick else (1024, 5000, 2)
    sizes = (str(megabytes << 20), str(count))
    packages = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    with mounted(packages, directory / "packages") as reachable:
        runtime = f'[runtimes."tia-1.7.0"]\nmounts = {{ "{PACKAGES}" = "{reachable}" }}\n'
        with running(directory / "inside", "bubblewrap", "private", runtime) as service:
            ours, theirs = _in_job(service, sizes), _outside(str(packages), sizes, env)
            _compare(table, client, peer, ours, theirs, rounds, (megabytes, count))


def _compare(
    table: Table, client: str, peer: str, ours: Run, theirs: Run, rounds: int, sizes: tuple[int, int]
) -> None:
    step = table.steps(f"inside {client}", 2 * rounds + 2)
    for run in (ours, theirs):
        run(client, "fill")
        step()
    found: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
    for number in range(rounds):
        # Each goes first in turn.
        for name, run in (("ours", ours), ("theirs", theirs))[:: 1 if number % 2 else -1]:
            found[name].append(run(client, "measure"))
            step()
    for name, what, unit in MEASURES:
        table.add(
            Row(
                f"inside {client} {name}",
                f"{client} in a job {what.format(megabytes=sizes[0], count=sizes[1])}, to {peer}",
                statistics.median(one[name] for one in found["ours"]),
                unit,
                statistics.median(one[name] for one in found["theirs"]),
                target=1,
                better="more",
            )
        )


def _in_job(service: Service, sizes: tuple[str, str]) -> Run:
    made = 0

    def run(client: str, step: str) -> dict[str, float]:
        nonlocal made
        made += 1
        argv = ("env", f"PYTHONPATH={PACKAGES}", PYTHON, "-c", PROGRAM, client, step, *sizes)
        _, job = service.run(f"inside-{made}", argv)
        return msgspec.json.decode(service.output(job).read_bytes())

    return run


def _outside(packages: str, sizes: tuple[str, str], env: dict[str, str]) -> Run:
    def run(client: str, step: str) -> dict[str, float]:
        command = [PYTHON, "-c", PROGRAM, client, step, *sizes]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": packages, **env}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return msgspec.json.decode(done.stdout)

    return run
