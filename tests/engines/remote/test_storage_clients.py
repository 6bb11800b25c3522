"""Buckets in jobs on a fake cluster with real runners, by a real service."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.remote.storage_clients import Where, check_clients, site_packages
from tests.running import ROOT, python_path, running

CONFIG = f"""
[clusters.ap-shanghai]
engine = "slurm"
python = "{sys.executable}"

[pools.pool-fake]
cluster = "ap-shanghai"

[images]
"tests/anything:1" = "anything"
"""


@pytest.fixture
def where(tmp_path: Path) -> Iterator[Where]:
    with running(CONFIG, {"PYTHONPATH": f"{ROOT}:{python_path()}"}) as service:
        # The service is one whose Slurm is a fake.
        service.start(wrapper=(sys.executable, "-m", "tests.engines.remote.serving", str(tmp_path)))
        yield Where(service, "pool-fake", site_packages(), (tmp_path,))


def test_a_program_on_a_node_reaches_the_buckets_of_its_project(where: Where):
    check_clients(where)
