"""Every convention tells the same gang."""

import json

from msgspec.structs import replace

from turnout.job import Attempt, Gang, Launch, Peer, Program, ReplicaName, Role, Spec
from turnout.job.topology import maps, tasks, variables

COMMAND = Program(("true",))


def gang_of(*roles: Role) -> tuple[Launch, Gang]:
    launch = Launch(Attempt(7, 1), "default", "tia", "cpu-job", Spec(roles))
    peers = [
        Peer(name, f"cpu-job-{name}", f"127.64.0.{number + 1}", (10_000 + 4 * number, 10_001 + 4 * number))
        for number, (name, _) in enumerate(launch.replicas())
    ]
    return launch, tuple(peers)


def everything(launch: Launch, gang: Gang, rank: int) -> dict[str, str]:
    common = maps(launch, gang)
    own = {name: common[name] + task for name, task in tasks(launch, gang[rank]).items()}
    return variables(gang, rank) | own


def test_a_master_a_ps_and_two_workers():
    launch, gang = gang_of(
        Role("master", COMMAND, leads=True, task_type="chief"),
        Role("ps", COMMAND),
        Role("worker", COMMAND, replicas=2),
    )
    told = everything(launch, gang, 3)
    assert json.loads(told["TF_CONFIG"]) == {
        "cluster": {
            "chief": ["127.64.0.1:10000"],
            "ps": ["127.64.0.2:10004"],
            "worker": ["127.64.0.3:10008", "127.64.0.4:10012"],
        },
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    }
    spec = json.loads(told["CLUSTER_SPEC"])
    assert list(spec["cluster"]) == ["master", "ps", "worker"]
    assert spec["task"] == {"type": "worker", "index": 1}
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("127.64.0.1", "10001")
    assert (told["RANK"], told["NODE_RANK"], told["WORLD_SIZE"]) == ("3", "3", "4")


def test_the_lead_is_rank_0_wherever_it_stands():
    _, gang = gang_of(Role("worker", COMMAND, replicas=2), Role("master", COMMAND, leads=True))
    assert gang[0].name == ReplicaName("master", 0)
    assert variables(gang, 0)["RANK"] == "0"
    assert variables(gang, 2)["MASTER_ADDR"] == gang[0].address


def test_one_alone_is_a_gang_too():
    launch, gang = gang_of(Role("master", COMMAND, leads=True, task_type="chief"))
    told = everything(launch, gang, 0)
    assert json.loads(told["TF_CONFIG"])["cluster"] == {"chief": ["127.64.0.1:10000"]}
    assert (told["RANK"], told["WORLD_SIZE"]) == ("0", "1")


def vertex_pools(**spec: str) -> tuple[Launch, Gang]:
    types = ("chief", "worker", "ps", "evaluator")
    roles = [
        Role(f"workerpool{number}", COMMAND, leads=number == 0, task_type=kind)
        for number, kind in enumerate(types)
    ]
    launch, gang = gang_of(*roles)
    return replace(launch, spec=replace(launch.spec, **spec)), gang


def test_an_evaluator_is_no_part_of_tensorflows_cluster():
    launch, gang = vertex_pools()
    told = everything(launch, gang, 3)
    config, spec = json.loads(told["TF_CONFIG"]), json.loads(told["CLUSTER_SPEC"])
    assert (list(config["cluster"]), config["task"]["type"]) == (["chief", "worker", "ps"], "evaluator")
    assert (list(spec["cluster"])[-1], spec["task"]["type"]) == ("workerpool3", "workerpool3")
    assert told["WORLD_SIZE"] == "4"


def test_the_maps_show_the_job_where_it_wants_that():
    launch, gang = vertex_pools(config_job='{"workerPoolSpecs":[{}]}')
    for name in ("TF_CONFIG", "CLUSTER_SPEC"):
        told = json.loads(everything(launch, gang, 1)[name])
        assert told["job"] == {"workerPoolSpecs": [{}]}
        assert list(told) == ["cluster", "job", "task", "environment"]


def test_a_trial_is_named_in_the_task():
    launch, gang = vertex_pools(trial="3")
    told = everything(launch, gang, 1)
    assert json.loads(told["TF_CONFIG"])["task"] == {"type": "worker", "index": 0, "trial": "3"}
    assert json.loads(told["CLUSTER_SPEC"])["task"] == {"type": "workerpool1", "index": 0, "trial": "3"}


def test_hosts_by_name():
    launch, gang = vertex_pools()
    cluster = json.loads(maps(launch, gang, named=True)["CLUSTER_SPEC"][:-1] + "}")["cluster"]
    assert cluster["workerpool0"] == [f"{gang[0].host}:10000"]
    assert variables(gang, 1, named=True)["MASTER_ADDR"] == gang[0].host
