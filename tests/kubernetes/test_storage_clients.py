"""Buckets in real pods, by the clouds' own clients and moxing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.remote.storage_clients import Where, check_clients, site_packages
from tests.kubernetes.daemons import Kubernetes
from tests.kubernetes.images import FRAMEWORKS
from tests.running import Service, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240, func_only=True)]

CONFIG = """
[clusters.cls-clients]
engine = "kubernetes"
kubeconfig = "{kubernetes.kubeconfig}"
images = {{ "tests/anything:1" = "{image}" }}
volumes = {{ "file:///packages" = "clients" }}

[pools.pool-kubernetes]
cluster = "cls-clients"

[runner]
url = "http://{kubernetes.address}:{port}"
"""


@pytest.fixture
def service(kubernetes: Kubernetes) -> Iterator[Service]:
    """The image finds the packages of this environment in the volume."""
    kubernetes.make_claim("clients", Path(site_packages()))
    with running() as one:
        one.config.write_text(CONFIG.format(kubernetes=kubernetes, image=FRAMEWORKS, port=one.port))
        yield one.start("--host", "0.0.0.0")


def test_a_program_reaches_the_buckets_of_its_project(service: Service):
    check_clients(Where(service, "pool-kubernetes", ""))
