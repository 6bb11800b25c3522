"""The variables and host names that only one cloud has."""

import re

from turnout.job import Attempt, Gang, Launch, Peer, Program, ReplicaName, Role, Spec, host_name, to_uuid
from turnout.job.conventions import convention

COMMAND = Program(("true",))
JOB = f"modelarts-job-{to_uuid(7)}"


def gang_of(*roles: Role, dialect: str = "modelarts", **details: object) -> tuple[Launch, Gang]:
    launch = Launch(Attempt(7, 2), "default", dialect, "a-job", Spec(roles), **details)  # pyright: ignore[reportArgumentType]
    host = convention(dialect).host
    peers = [
        Peer(name, host(launch, name), f"127.64.0.{number + 1}", (10_000, 10_001))
        for number, (name, _) in enumerate(launch.replicas())
    ]
    return launch, tuple(peers)


def test_other_dialects_are_told_nothing_more():
    launch, gang = gang_of(Role("master", COMMAND, leads=True), dialect="tia")
    own = convention("tia")
    assert own.host(launch, ReplicaName("master", 0)) == host_name(7, "a-job", ReplicaName("master", 0))
    assert (own.domain(launch), own.variables(launch, gang, 0), own.maps(launch, gang, True)) == ("", {}, {})


def test_modelarts_workers():
    launch, gang = gang_of(Role("worker", COMMAND, 2, leads=True), gpus={"worker-1": (0, 3)})
    own = convention("modelarts")
    told = own.variables(launch, gang, 1)
    assert gang[1].host == told["MA_CURRENT_INSTANCE_NAME"] == f"{JOB}-worker-1"
    assert (told["MA_NUM_HOSTS"], told["VC_WORKER_NUM"], told["VC_TASK_INDEX"]) == ("2", "2", "1")
    assert (told["MA_NUM_GPUS"], own.variables(launch, gang, 0)["MA_NUM_GPUS"]) == ("2", "0")
    assert (told["MA_CURRENT_IP"], told["MA_SCHEDULE_CNT"]) == ("127.64.0.2", "2")
    assert told["MA_JOB_DIR"] == "/home/ma-user/modelarts/user-job-dir"
    assert "HOME" not in told
    names = f"{JOB}-worker-0.{JOB},{JOB}-worker-1.{JOB}"
    assert own.maps(launch, gang, True) == {"VC_WORKER_HOSTS": names}
    assert own.maps(launch, gang, False) == {"VC_WORKER_HOSTS": "127.64.0.1,127.64.0.2"}


def test_modelarts_roles_of_any_name():
    launch, gang = gang_of(
        Role("my-learner.1", COMMAND, leads=True), Role("Actor", COMMAND, 2), Role("actor" * 9, COMMAND)
    )
    own = convention("modelarts")
    hosts = own.maps(launch, gang, False)
    assert hosts["VC_MY_LEARNER_1_HOSTS"] == "127.64.0.1"
    assert hosts["VC_ACTOR_HOSTS"] == "127.64.0.2,127.64.0.3"
    assert hosts["VC_WORKER_HOSTS"].count(",") == 3
    assert own.variables(launch, gang, 0)["VC_WORKER_NUM"] == "4"
    names = [peer.host for peer in gang]
    assert len(set(names)) == 4
    assert all(len(name) <= 63 and name == name.lower() for name in names)


def test_vertex_hosts():
    launch, gang = gang_of(
        Role("workerpool0", COMMAND, leads=True), Role("workerpool1", COMMAND, 2), dialect="vertex"
    )
    first, _, last = [peer.host for peer in gang]
    assert re.fullmatch("cmle-training-workerpool0-[0-9a-f]{10}-0", first)
    assert last == first.replace("workerpool0", "workerpool1").removesuffix("0") + "1"
    own = convention("vertex")
    assert (own.by_name, own.ranks_single_replica) == (True, False)
    assert own.variables(launch, gang, 1) == {"NCCL_SOCKET_IFNAME": "lo"}
