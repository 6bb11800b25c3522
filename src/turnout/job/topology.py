"""Who talks to whom: the gang's map as each convention spells it, in environment variables.

Every member is a rank, in the order of the map: the lead is 0. Parameter servers are ranks too, because programs
that use both (torch's RPC) count them. There is one rank on each "node": its own address.
"""

import msgspec

from turnout.job.launch import Gang, Launch, Peer


def variables(launch: Launch, gang: Gang, rank: int) -> dict[str, str]:
    """What member number `rank` of the gang is told about all of them."""
    lead = gang[0]
    return {
        "TF_CONFIG": tf_config(launch, gang, gang[rank]),
        "CLUSTER_SPEC": cluster_spec(gang, gang[rank]),
        "MASTER_ADDR": lead.address,
        "MASTER_PORT": str(lead.ports[1]),
        "RANK": str(rank),
        "WORLD_SIZE": str(len(gang)),
        "NODE_RANK": str(rank),
    }


def tf_config(launch: Launch, gang: Gang, me: Peer) -> str:
    """TensorFlow's map. A role goes by its `task_type`: the lead of TensorFlow ≥ 1.4 is the `chief`."""
    types = {role.name: role.task_type or role.name for role in launch.spec.roles}
    return _document(gang, me, types)


def cluster_spec(gang: Gang, me: Peer) -> str:
    """Vertex' map, with the roles' own names."""
    return _document(gang, me, {})


def _document(gang: Gang, me: Peer, types: dict[str, str]) -> str:
    cluster: dict[str, list[str]] = {}
    for peer in gang:
        role = peer.name.role
        cluster.setdefault(types.get(role, role), []).append(f"{peer.address}:{peer.ports[0]}")
    task = {"type": types.get(me.name.role, me.name.role), "index": me.name.index}
    return msgspec.json.encode({"cluster": cluster, "task": task, "environment": "cloud"}).decode()
