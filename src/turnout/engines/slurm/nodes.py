"""The nodes of Slurm, as `scontrol show node` describes them."""

import re

from turnout.engines.remote import ClusterNode
from turnout.job.resources import CORE, Share

COMMAND = ("scontrol", "show", "node", "--details", "--oneliner")

_FIELD = re.compile(r"(\w+)=(\S*)")
_USABLE = ("ALLOCATED", "COMPLETING", "IDLE", "MIXED")
"""States without a flag such as `+DRAIN`, or a mark such as `*`, which says that the node does not answer."""
_IN_BRACKETS = re.compile(r"\([^)]*\)")
_MIB = 1 << 20


def nodes(output: str, partition: str) -> list[ClusterNode]:
    """`partition`: only its nodes; empty: all."""
    found: list[ClusterNode] = []
    for line in output.splitlines():
        fields = dict(_FIELD.findall(line))
        if "NodeName" in fields and (not partition or partition in fields.get("Partitions", "").split(",")):
            found.append(_node(fields))
    return found


def _node(fields: dict[str, str]) -> ClusterNode:
    state = fields.get("State", "")
    cpus = _number(fields.get("CPUEfctv") or fields.get("CPUTot"))
    capacity = Share(cpus * CORE, _number(fields.get("RealMemory")) * _MIB, _gpus(fields.get("Gres")))
    used = Share(
        _number(fields.get("CPUAlloc")) * CORE,
        _number(fields.get("AllocMem")) * _MIB,
        _gpus(fields.get("GresUsed")),
    )
    return ClusterNode(fields["NodeName"], state.lower(), state in _USABLE, capacity, used)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _gpus(text: str | None) -> int:
    """How many GPUs `gpu:a100:2(S:0-1),gpu:1,nic:2` has: three."""
    parts = [part.split(":") for part in _IN_BRACKETS.sub("", text or "").split(",")]
    return sum(_number(part[-1]) for part in parts if part[0] == "gpu")
