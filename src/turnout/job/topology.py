"""The addresses of a gang's members in environment variables, in the form of each convention.

Every member is a rank, in the order of the map: the lead is 0. Parameter servers are ranks too, because programs
that use both (torch's RPC) count them. There is one rank on each "node": its own address.
"""

import msgspec

from turnout.job.launch import Gang, Launch, Peer

TF_CONFIG = "TF_CONFIG"
"""TensorFlow's map. A role goes by its `task_type`: the lead of TensorFlow ≥ 1.4 is the `chief`."""
CLUSTER_SPEC = "CLUSTER_SPEC"
"""Vertex' map, with the roles' own names."""
DASHBOARD_PORT = "AIP_DASHBOARD_PORT"
"""The port on which the lead may listen with a page of its own. Google documents no name for it; this is ours."""

_EVALUATOR = "evaluator"
"""A task in TensorFlow, but not a member of the cluster."""


def variables(gang: Gang, rank: int, named: bool = False) -> dict[str, str]:
    """The variables of member `rank`, besides the maps. `named`: with host names instead of addresses."""
    lead = gang[0]
    return {
        "MASTER_ADDR": lead.host if named else lead.address,
        "MASTER_PORT": str(lead.ports[1]),
        "RANK": str(rank),
        "WORLD_SIZE": str(len(gang)),
        "NODE_RANK": str(rank),
    }


def maps(launch: Launch, gang: Gang, named: bool = False) -> dict[str, str]:
    """The common part of the maps of all members, by variable. A member's `tasks` complete the text.

    There are two parts because the whole text for every member of a large gang would take too much memory.
    """
    types = _types(launch)
    roles = [(types.get(peer.name.role, peer.name.role), peer) for peer in gang]
    cluster = [(role, peer) for role, peer in roles if role != _EVALUATOR]
    own = [(peer.name.role, peer) for peer in gang]
    shown = f'"job":{launch.spec.config_job},' if launch.spec.config_job else ""
    plain = _map(own, named) + shown
    return {TF_CONFIG: plain if cluster == own else _map(cluster, named) + shown, CLUSTER_SPEC: plain}


def tasks(launch: Launch, me: Peer) -> dict[str, str]:
    """The text that follows the gang's `maps` for this member."""
    role, index, trial = me.name.role, me.name.index, launch.spec.trial
    return {
        TF_CONFIG: _task(_types(launch).get(role, role), index, trial),
        CLUSTER_SPEC: _task(role, index, trial),
    }


def _types(launch: Launch) -> dict[str, str]:
    return {role.name: role.task_type for role in launch.spec.roles if role.task_type}


def _map(members: list[tuple[str, Peer]], named: bool) -> str:
    cluster: dict[str, list[str]] = {}
    for role, peer in members:
        host = peer.host if named else peer.address
        cluster.setdefault(role, []).append(f"{host}:{peer.ports[0]}")
    return f'{{"cluster":{msgspec.json.encode(cluster).decode()},'


def _task(kind: str, index: int, trial: str) -> str:
    task = {"type": kind, "index": index} | ({"trial": trial} if trial else {})
    return f'"task":{msgspec.json.encode(task).decode()},"environment":"cloud"}}'
