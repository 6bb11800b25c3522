"""Real training in pods."""

from collections.abc import Iterator

import pytest

from tests.engines.training import ENGINE, Lab, RealTraining
from tests.kubernetes.daemons import Kubernetes
from tests.kubernetes.images import FRAMEWORKS
from tests.running import ROOT, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLUSTER = "cls-training"
CONFIG = """
[clusters.{cluster}]
engine = "kubernetes"
kubeconfig = "{kubernetes.kubeconfig}"
images = {{ "{engine}" = "{image}", "tia-1.7.0" = "{image}" }}
volumes = {{ "file:///packages" = "frameworks" }}

[pools.pool-kubernetes]
cluster = "{cluster}"

[runner]
url = "http://{kubernetes.address}:{port}"
"""


@pytest.fixture(scope="module")
def lab(kubernetes: Kubernetes) -> Iterator[Lab]:
    [packages] = (ROOT / ".venv-slow").resolve().glob("lib/python3.*/site-packages")
    kubernetes.make_claim("frameworks", packages)
    with running() as one:
        values = {"cluster": CLUSTER, "engine": ENGINE, "image": FRAMEWORKS, "port": one.port}
        one.config.write_text(CONFIG.format(kubernetes=kubernetes, **values))
        one.start("--host", "0.0.0.0")
        yield Lab(
            one,
            CLUSTER,
            "pool-kubernetes",
            tia="0U2G0P",
            vertex="n4-highcpu-2",
            memory=2,
            image=FRAMEWORKS,
        )


class TestKubernetes(RealTraining):
    pass
