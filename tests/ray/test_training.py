"""Real training on a real Ray."""

from collections.abc import Iterator

import pytest

from tests.engines.training import RUNTIMES, Lab, RealTraining
from tests.ray.daemons import Ray
from tests.running import running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLUSTER = "ap-shanghai"
CONFIG = f"""
[clusters.{CLUSTER}]
engine = "ray"
address = "{{ray.address}}"
python = "{{ray.python}}"

[clusters.apart]
engine = "ray"
address = "{{ray.address}}"
python = "{{ray.python}}"
spread = true

[pools.pool-ray]
cluster = "apart"
{RUNTIMES}"""


@pytest.fixture(scope="module")
def lab(ray: Ray) -> Iterator[Lab]:
    with running(config=CONFIG.format(ray=ray)) as one:
        one.start()
        addresses = frozenset(ray.workers)
        # Ray's nodes are all on this machine, and have its name.
        yield Lab(
            one, CLUSTER, "pool-ray", tia="2U3G0P", vertex="n1-standard-4", addresses=addresses, places=1
        )


class TestRay(RealTraining):
    pass
