"""What only one cloud tells a replica of itself and its peers, and what it calls them, chosen by the job's dialect.

What all of them tell is in `topology`. Paths in here are those of the sandbox; without one they are rewritten.
"""

import hashlib
import re
from collections.abc import Callable
from typing import NamedTuple

from turnout.job.ids import to_uuid
from turnout.job.launch import Gang, Launch, Peer, ReplicaName
from turnout.job.names import host_name, short_name

_NOT_IN_VARIABLES = re.compile("[^A-Z0-9_]")


class Convention(NamedTuple):
    host: Callable[[Launch, ReplicaName], str]
    """The replica's host name: at most 63 characters."""
    domain: Callable[[Launch], str]
    """Peers are also known as `<host>.<domain>`; empty: they are not."""
    variables: Callable[[Launch, Gang, int], dict[str, str]]
    """What member number so-and-so is told."""
    maps: Callable[[Launch, Gang, bool], dict[str, str]]
    """What grows with the gang and is the same for all members, in names if those can be looked up, else addresses."""
    by_name: bool = False
    """The maps that all clouds have name hosts instead of addresses, where names can be looked up."""
    ranks_one: bool = True
    """A replica that is alone is told its rank and TF_CONFIG too."""
    user: str = ""
    """What the user is called if the program asks for a user id; empty: as the one that it really runs as."""


def convention(dialect: str) -> Convention:
    return _BY_DIALECT.get(dialect, _PLAIN)


def _plain_host(launch: Launch, replica: ReplicaName) -> str:
    return host_name(launch.attempt.job, launch.name, replica)


def _no_domain(_launch: Launch) -> str:
    return ""


def _nothing(_launch: Launch, _gang: Gang, _: object) -> dict[str, str]:
    return {}


def _loopback(gang: Gang, rank: int) -> dict[str, str]:
    # By itself NCCL passes over the one interface that all members share.
    shared = len(gang) > 1 and gang[rank].address.startswith("127.")
    return {"NCCL_SOCKET_IFNAME": "lo"} if shared else {}


_PLAIN = Convention(_plain_host, _no_domain, _nothing, _nothing)


# ModelArts: its containers are made by Volcano, whose names and variables can be seen in them.


def _virtual_job(launch: Launch) -> str:
    return f"modelarts-job-{to_uuid(launch.attempt.job)}"


def _modelarts_host(launch: Launch, replica: ReplicaName) -> str:
    return short_name(_virtual_job(launch), replica)


def _modelarts_variables(launch: Launch, gang: Gang, rank: int) -> dict[str, str]:
    me = gang[rank]
    root = "/home/ma-user"
    told = {
        "MA_HOME": root,
        "MA_MOUNT_PATH": f"{root}/modelarts",
        "MA_JOB_DIR": f"{root}/modelarts/user-job-dir",
        "MA_LOG_DIR": f"{root}/modelarts/log",
        "MA_SCRIPT_INTERPRETER": "",
        "MA_CURRENT_IP": me.address,
        "MA_CURRENT_INSTANCE_NAME": me.host,
        "MA_VJ_NAME": _virtual_job(launch),
        "MA_TASK_NAME": me.name.role,
        "MA_NUM_HOSTS": str(len(gang)),
        "MA_NUM_GPUS": str(len(launch.gpus.get(str(me.name), ()))),
        "MA_SCHEDULE_CNT": str(launch.attempt.number),
        "MA_PROC_START_CNT": "1",
        "MA_DETECT_TRAIN_INJECT_CODE": "0",
        "VC_TASK_INDEX": str(me.name.index),
    }
    told |= {f"VC_{_spelt(role.name)}_NUM": str(role.replicas) for role in launch.spec.roles}
    told.setdefault("VC_WORKER_NUM", str(len(gang)))
    if launch.spec.policy.hang_seconds is not None:
        told["MA_HANG_DETECT_TIME"] = f"{launch.spec.policy.hang_seconds / 60:g}"
    if root in launch.spec.scratch:
        told["HOME"] = root
    return told | _loopback(gang, rank)


def _modelarts_maps(launch: Launch, gang: Gang, named: bool) -> dict[str, str]:
    domain = _virtual_job(launch)
    hosts: dict[str, list[str]] = {}
    for peer in gang:
        hosts.setdefault(_spelt(peer.name.role), []).append(_reached(peer, domain, named))
    # A job of other roles only has workers too, for programs that know of nothing else.
    hosts.setdefault("WORKER", [_reached(peer, domain, named) for peer in gang])
    return {f"VC_{role}_HOSTS": ",".join(names) for role, names in hosts.items()}


def _reached(peer: Peer, domain: str, named: bool) -> str:
    return f"{peer.host}.{domain}" if named else peer.address


def _spelt(role: str) -> str:
    """`My-task` in a variable's name: `MY_TASK`."""
    return _NOT_IN_VARIABLES.sub("_", role.upper())


_MODELARTS = Convention(_modelarts_host, _virtual_job, _modelarts_variables, _modelarts_maps, user="ma-user")


# Vertex: its machines are called as their predecessor's were, and name each other.


def _vertex_host(launch: Launch, replica: ReplicaName) -> str:
    digest = hashlib.blake2b(str(launch.attempt.job).encode(), digest_size=5).hexdigest()
    return f"cmle-training-{replica.role}-{digest}-{replica.index}"


def _vertex_variables(_launch: Launch, gang: Gang, rank: int) -> dict[str, str]:
    return _loopback(gang, rank)


_VERTEX = Convention(_vertex_host, _no_domain, _vertex_variables, _nothing, by_name=True, ranks_one=False)
_BY_DIALECT = {"modelarts": _MODELARTS, "vertex": _VERTEX}
