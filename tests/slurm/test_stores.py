"""Mounts, code and logs in a real object store: nodes send signed requests to it, or to the service in its place."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.running import Service, running
from tests.slurm.daemons import Slurm
from tests.slurm.test_service import CONFIG, ended
from tests.stores import ADMIN, S3, FaultyProxy, faulty_proxy, s3
from turnout.storage import RemoteSettings
from turnout.storage.remote.store import open_store

__all__ = ["s3"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

BIG = bytes(range(256)) * (20 << 12)
PROGRAM = """\
cat "$data/a b%.txt" >"$model/early"
echo ready
while [ ! -e {go} ]; do sleep 0.1; done
mkdir "$model/sub" && cp "$data/sub/big" "$model/sub/late"
"""
STORED = """
[storage.buckets.{name}]
url = "{url}"
endpoint = "{endpoint}"
region = "us-east-1"
allow_http = true
key = "{key}"
secret = "{secret}"
"""


class Place(NamedTuple):
    service: Service
    proxy: FaultyProxy
    """The way to the store on which nodes can go too."""
    stores: dict[str, Any]
    """By bucket."""


@pytest.fixture(scope="module")
def stored(slurm: Slurm, s3: S3) -> Iterator[Place]:
    variables = {"SLURM_CONF": slurm.environment["SLURM_CONF"]}
    with faulty_proxy(s3.port, host=slurm.address) as proxy, running(env=variables) as service:
        config = f'{CONFIG}\n[runner]\nurl = "http://{slurm.address}:{service.port}"\n'
        stores: dict[str, Any] = {}
        # What is on this machine's loopback, nodes cannot reach.
        for name, endpoint in (("outside", proxy.endpoint), ("inside", s3.endpoint)):
            backing = s3.backing()
            stores[name] = open_store(msgspec.convert(backing, RemoteSettings))
            config += STORED.format(
                name=name, url=backing["url"], endpoint=endpoint, key=ADMIN[0], secret=ADMIN[1]
            )
        service.config.write_text(config)
        yield Place(service.start("--host", "0.0.0.0"), proxy, stores)


def test_everything_of_a_job_is_in_a_store(stored: Place, slurm: Slurm, place: Path):
    huawei = Huawei(stored.service)
    go = place / "go"
    made = {bucket: begin(huawei, store, bucket, go) for bucket, store in stored.stores.items()}
    for bucket, store in stored.stores.items():
        huawei.wait_for(made[bucket], "ready", seconds=120)
        until(lambda store=store: found(store).get("out/early") == b"some data")
        assert "out/sub/late" not in found(store)
    go.touch()
    for bucket, store in stored.stores.items():
        job = ended(stored.service, bucket)
        assert job["state"] == "succeeded", (job, huawei.log(made[bucket]))
        until(lambda store=store: found(store).get("out/sub/late") == BIG)
        until(lambda store=store: has_log(store))
    assert {slurm.near, slurm.far} & stored.proxy.clients
    assert ADMIN[1] not in stored.service.log.read_text()


def begin(huawei: Huawei, store: Any, bucket: str, go: Path) -> str:
    store.put("code/run.sh", PROGRAM.format(go=go).encode())
    store.put("in/a b%.txt", b"some data")
    store.put("in/sub/big", BIG)
    algorithm = {
        "code_dir": f"/{bucket}/code/",
        "inputs": [{"name": "data", "remote": {"obs": {"obs_url": f"/{bucket}/in/"}}}],
        "outputs": [{"name": "model", "remote": {"obs": {"obs_url": f"/{bucket}/out/"}}}],
    }
    spec = {
        "resource": {"pool_id": "pool-slurm", "node_count": 1},
        "log_export_path": {"obs_url": f"/{bucket}/logs/"},
    }
    made = huawei.create(bucket, "sh $MA_JOB_DIR/code/run.sh", algorithm=algorithm, spec=spec)
    return made.metadata.id


def has_log(store: Any) -> bool:
    return any(key.startswith("logs/") and b"ready" in data for key, data in found(store).items())


def found(store: Any) -> dict[str, bytes]:
    names = [one["path"] for page in store.list() for one in page]
    return {name: bytes(store.get(name).bytes()) for name in names}


def until(condition: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)
