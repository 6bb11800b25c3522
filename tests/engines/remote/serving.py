"""`python -m tests.engines.remote.serving SCRATCH COMMAND…`: runs `turnout serve` with a fake cluster for Slurm's."""

import sys
from pathlib import Path

from tests.engines.remote.fake_cluster import FakeCluster
from turnout.cli.main import main
from turnout.wiring import engines


class FakeSlurm(FakeCluster):
    kind = "slurm"


scratch = Path(sys.argv[1])
engines._cluster = lambda *_: FakeSlurm(scratch)  # pyright: ignore[reportPrivateUsage]
sys.argv = ["turnout", *sys.argv[sys.argv.index("serve") :]]
main()
