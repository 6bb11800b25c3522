"""nfsMounts: what the kernel is asked for, and what the replicas find."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.cloud import aiplatform_v1

from tests.dialects.vertex.driving import Cloud
from tests.running import reachable_directory, running

MOUNT = """#!/bin/sh
echo "$@" >> {place}/mounted
for last; do :; done
case "$*" in *nobody*) echo "nobody exports that" >&2; exit 32;; esac
chmod 777 "$last"
"""
"""Stands for the kernel's NFS client, for want of a server: notes how it was called."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with reachable_directory() as directory:
        (directory / "mount").write_text(MOUNT.format(place=directory))
        (directory / "mount").chmod(0o755)
        yield directory


@pytest.fixture(scope="module")
def cloud(place: Path) -> Iterator[Cloud]:
    with running(env={"PATH": f"{place}:{os.environ['PATH']}"}) as service:
        yield Cloud(service.start())


def create(cloud: Cloud, script: str, *mounts: dict[str, str]) -> Any:
    pool = {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "replica_count": 1,
        "nfs_mounts": list(mounts),
        "container_spec": {"image_uri": "python:3.11", "command": ["sh", "-c", script]},
    }
    job = aiplatform_v1.CustomJob(
        {
            "display_name": "nfs",
            "job_spec": {"worker_pool_specs": [pool], "scheduling": {"disable_retries": True}},
        }
    )
    return cloud.client().create_custom_job(parent=cloud.parent, custom_job=job)


def test_a_directory_of_a_server_is_below_mnt_nfs(cloud: Cloud, place: Path):
    script = "echo kept > /mnt/nfs/data/deep/x && cat /mnt/nfs/data/deep/x"
    mount = {"server": "10.0.0.2", "path": "/export/a", "mount_point": "data/deep"}
    made = create(cloud, script, mount)
    ended = cloud.wait(made.name)
    assert ended["state"] == "JOB_STATE_SUCCEEDED", ended
    (called,) = [line.split() for line in (place / "mounted").read_text().splitlines()]
    assert called[:-1] == ["-t", "nfs", "-o", "rw,nosuid,nodev,soft,timeo=100", "--", "10.0.0.2:/export/a"]
    assert Path(called[-1], "x").read_text() == "kept\n"


def test_what_the_server_says_is_told(cloud: Cloud):
    made = create(cloud, "true", {"server": "nobody", "path": "/x", "mount_point": "x"})
    failed = cloud.wait(made.name)
    assert failed["state"] == "JOB_STATE_FAILED"
    assert "nobody exports that" in failed["error"]["message"]
