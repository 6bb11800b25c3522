"""Environment variables and host names that one cloud gives its replicas, chosen by the job's dialect.

Those that all clouds give are in `topology`. Paths are those inside the sandbox; without one they are rewritten.
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
    """Peers also have the name `<host>.<domain>`; empty if they do not."""
    variables: Callable[[Launch, Gang, int], dict[str, str]]
    """The variables of the member with this number."""
    maps: Callable[[Launch, Gang, bool], dict[str, str]]
    """Variables that grow with the gang and are equal for all members: with host names (True) or addresses (False)."""
    has_names: bool = False
    """The cloud's replicas find each other by host name, so programs may rely on it."""
    by_name: bool = False
    """Where names resolve, the maps of `topology` contain host names instead of addresses."""
    ranks_single_replica: bool = True
    """A single replica gets its rank and TF_CONFIG too."""
    user: str = ""
    """The user name if the program asks for a user id; empty for the name of the real user."""


def convention(dialect: str) -> Convention:
    return _BY_DIALECT.get(dialect, _PLAIN)


def _plain_host(launch: Launch, replica: ReplicaName) -> str:
    return host_name(launch.attempt.job, launch.name, replica)


def _no_domain(_launch: Launch) -> str:
    return ""


def _nothing(_launch: Launch, _gang: Gang, _: object) -> dict[str, str]:
    return {}


def _loopback(gang: Gang, rank: int) -> dict[str, str]:
    # By default NCCL ignores the one interface that all members share.
    shared = len(gang) > 1 and gang[rank].address.startswith("127.")
    return {"NCCL_SOCKET_IFNAME": "lo"} if shared else {}


_PLAIN = Convention(_plain_host, _no_domain, _nothing, _nothing)


# ModelArts: Volcano makes its containers, and sets these names and variables.


def _virtual_job(launch: Launch) -> str:
    return f"modelarts-job-{to_uuid(launch.attempt.job)}"


def _modelarts_host(launch: Launch, replica: ReplicaName) -> str:
    return short_name(_virtual_job(launch), replica)


def _modelarts_variables(launch: Launch, gang: Gang, rank: int) -> dict[str, str]:
    me = gang[rank]
    root = "/home/ma-user"
    variables = {
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
        "TURNOUT_MODULES": "/opt/turnout/bin/modules.zip",
    }
    variables |= {f"VC_{_in_variable(role.name)}_NUM": str(role.replicas) for role in launch.spec.roles}
    variables.setdefault("VC_WORKER_NUM", str(len(gang)))
    if launch.spec.policy.hang_seconds is not None:
        variables["MA_HANG_DETECT_TIME"] = f"{launch.spec.policy.hang_seconds / 60:g}"
    if root in launch.spec.scratch:
        variables["HOME"] = root
    return variables | _loopback(gang, rank)


def _modelarts_maps(launch: Launch, gang: Gang, named: bool) -> dict[str, str]:
    domain = _virtual_job(launch)
    hosts: dict[str, list[str]] = {}
    for peer in gang:
        hosts.setdefault(_in_variable(peer.name.role), []).append(_peer_host(peer, domain, named))
    # A job without workers gets worker variables too, for programs that only know those.
    hosts.setdefault("WORKER", [_peer_host(peer, domain, named) for peer in gang])
    return {f"VC_{role}_HOSTS": ",".join(names) for role, names in hosts.items()}


def _peer_host(peer: Peer, domain: str, named: bool) -> str:
    return f"{peer.host}.{domain}" if named else peer.address


def _in_variable(role: str) -> str:
    """`My-task` in a variable's name: `MY_TASK`."""
    return _NOT_IN_VARIABLES.sub("_", role.upper())


_MODELARTS = Convention(
    _modelarts_host, _virtual_job, _modelarts_variables, _modelarts_maps, has_names=True, user="ma-user"
)


# Vertex: machines have the names of AI Platform's, and resolve each other.


def _vertex_host(launch: Launch, replica: ReplicaName) -> str:
    digest = hashlib.blake2b(str(launch.attempt.job).encode(), digest_size=5).hexdigest()
    return f"cmle-training-{replica.role}-{digest}-{replica.index}"


def _vertex_variables(_launch: Launch, gang: Gang, rank: int) -> dict[str, str]:
    return _loopback(gang, rank)


_VERTEX = Convention(
    _vertex_host,
    _no_domain,
    _vertex_variables,
    _nothing,
    has_names=True,
    by_name=True,
    ranks_single_replica=False,
)
_BY_DIALECT = {"modelarts": _MODELARTS, "vertex": _VERTEX}
