"""The nodes of a cluster, with the jobs that run there."""

from pathlib import Path

import pytest

from tests.engines.conformance import PRINT_AND_WAIT
from tests.engines.remote.harness import RemoteHarness
from turnout.engines.kubernetes.nodes import quantity
from turnout.engines.ray.states import cluster_node
from turnout.engines.remote import ClusterNode, NodeJob, NodeUse
from turnout.engines.remote import nodes as remote_nodes
from turnout.engines.slurm.nodes import nodes as slurm_nodes
from turnout.job.resources import GIB, Share

HERE = ClusterNode("10.0.0.1", "alive", True, Share(4000, GIB, 0), Share(1000, 0, 0), address="127.0.0.1")
OTHER = ClusterNode("10.0.0.2", "alive", True, Share(4000, GIB, 0), address="10.0.0.2")
# Of `scontrol show node --details --oneliner`, Slurm 22.05; the state of the second was changed by hand.
SLURM = """\
NodeName=lab1n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=2 CPUEfctv=4 CPUTot=4 CPULoad=11.37 Gres=(null) GresDrain=N/A \
GresUsed=gpu:0 NodeAddr=10.77.1.1 NodeHostName=localhost Port=6821 Version=22.05.8 OS=Linux 6.18.44 #1 SMP @0  \
RealMemory=16000 AllocMem=200 FreeMem=4295 State=MIXED Weight=1 Partitions=main,one,short CfgTRES=cpu=4,mem=16000M
NodeName=lab1n3 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=11.37 Gres=gpu:a100:2(S:0-1) \
GresUsed=gpu:a100:1(IDX:0) NodeAddr=10.77.1.1 NodeHostName=localhost RealMemory=16000 AllocMem=0 State=IDLE+DRAIN \
Partitions=main,short
"""


async def test_a_node_shows_the_jobs_that_run_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with RemoteHarness(tmp_path) as one:
        one.cluster.all_nodes = [HERE, OTHER]
        attempt = await one.python(PRINT_AND_WAIT)
        await one.wait_for_output(attempt, "running\n")
        launch = one.launch("true")
        job = NodeJob(attempt.job, launch.project, launch.name, 1)
        assert await one.engine.nodes() == [NodeUse(HERE, [job]), NodeUse(OTHER, [])]
        await one.engine.stop(attempt, 0)
        await one.ended(attempt)
        one.cluster.away = "the cluster is away"
        assert await one.engine.nodes() == [NodeUse(HERE, []), NodeUse(OTHER, [])], (
            "the answer is still fresh"
        )
        monkeypatch.setattr(remote_nodes, "FRESH_SECONDS", 0.0)
        assert await one.engine.nodes() == []


def test_the_nodes_of_slurm():
    first, second = slurm_nodes(SLURM, "short")
    assert first == ClusterNode(
        "lab1n1", "mixed", True, Share(4000, 16000 << 20, 0), Share(2000, 200 << 20, 0)
    )
    assert (second.state, second.usable) == ("idle+drain", False)
    assert (second.capacity.gpus, second.used and second.used.gpus) == (2, 1)
    assert [node.name for node in slurm_nodes(SLURM, "one")] == ["lab1n1"]


def test_the_nodes_of_ray():
    given = {"CPU": 4.0, "memory": 8.0 * GIB, "GPU": 2.0, "node:10.0.0.7": 1.0}
    node = {"address": "10.0.0.7", "resources": given, "free": {"CPU": 1.0, "memory": 8.0 * GIB, "GPU": 2.0}}
    found = cluster_node(node, "GPU")
    assert (found.name, found.address, found.usable) == ("10.0.0.7", "10.0.0.7", True)
    assert (found.capacity, found.used) == (Share(4000, 8 * GIB, 2), Share(3000, 0, 0))


def test_quantities_of_kubernetes():
    asked = ["2", "1930m", "16393236Ki", "1Gi", "128974848", "5G", "", "much"]
    assert [quantity(text) for text in asked] == [
        2, 1.93, 16393236 << 10, 1 << 30, 128974848, 5e9, 0, 0,
    ]  # fmt: skip
