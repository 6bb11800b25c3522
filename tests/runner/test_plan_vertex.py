"""What Vertex tells a replica at its start: names, ranks, maps, and what the job's own variables make of them."""

import json
from pathlib import Path

import pytest

from turnout.job import Attempt, Launch, Peer, Program, ReplicaName, Role, Spec
from turnout.job.conventions import convention
from turnout.paths import Paths
from turnout.runner.plan import GangPlan, Layout, Runtime, plan_gang

BOXED = Layout(sandbox=("bwrap",))
BARE = Layout()
PROGRAM = Program(("true",))


def planned(
    *roles: Role, layout: Layout = BOXED, told: str = "", only: ReplicaName | None = None
) -> GangPlan:
    launch = Launch(Attempt(7, 1), "default", "vertex", "my job", Spec(roles, told=told))
    host = convention("vertex").host
    gang = tuple(
        Peer(name, host(launch, name), f"127.64.0.{number}", (10000, 10001))
        for number, (name, _) in enumerate(launch.replicas(), 1)
    )
    runtimes = {"": Runtime("/usr/bin/python3", "/shims")}
    return plan_gang(launch, gang, runtimes, [], layout, Paths(Path("/data-dir")), only=only)


def pools(*counts: int, **details: object) -> list[Role]:
    return [
        Role(f"workerpool{number}", PROGRAM, count, leads=number == 0, **details)  # type: ignore[arg-type]
        for number, count in enumerate(counts)
    ]


def environment(plan: GangPlan, rank: int) -> dict[str, str]:
    """As the keeper puts it together."""
    replica = plan.replicas[rank]
    return replica.env | {name: plan.shared.maps[name] + task for name, task in replica.tasks.items()}


def named(plan: GangPlan) -> list[str]:
    return [replica.name for replica in plan.replicas]


def test_one_replica_has_no_rank_and_no_tf_config():
    told = environment(planned(*pools(1), told='{"a":1}'), 0)
    assert not told.keys() & {"TF_CONFIG", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK"}
    spec = json.loads(told["CLUSTER_SPEC"])
    assert (spec["cluster"], spec["job"]) == ({"workerpool0": [f"{told['HOSTNAME']}:10000"]}, {"a": 1})


@pytest.mark.parametrize("layout", [BOXED, BARE])
def test_several_know_each_other_by_name_where_names_can_be_looked_up(layout: Layout):
    plan = planned(*pools(1, 2), layout=layout)
    told = environment(plan, 2)
    assert (told["RANK"], told["WORLD_SIZE"]) == ("2", "3")
    lead = environment(plan, 0)["HOSTNAME"] if layout is BOXED else "127.64.0.1"
    assert told["MASTER_ADDR"] == lead
    for name in ("TF_CONFIG", "CLUSTER_SPEC"):
        assert json.loads(told[name])["cluster"]["workerpool0"] == [f"{lead}:10000"]
    assert f"127.64.0.1 {lead}\n" in plan.shared.hosts or layout is BARE


def test_variables_that_refer_to_what_is_known_only_now():
    env = {
        "ID": "$(TURNOUT_JOB)",
        "ME": "$(RANK)/$(ID) $$(RANK) $(NONE)",
        "TF": "x$(TF_CONFIG)",
        "PLAIN": "$(RANK)",
    }
    role = Role("workerpool0", PROGRAM, leads=True, env=env, late=("ID", "ME", "TF"))
    told = environment(planned(role, *pools(0, 1)[1:]), 0)
    assert (told["ID"], told["ME"], told["PLAIN"]) == ("7", "0/7 $(RANK) $(NONE)", "$(RANK)")
    assert told["TF"] == "x" + told["TF_CONFIG"]


def test_a_reference_to_what_one_alone_does_not_have_stays():
    role = Role("workerpool0", PROGRAM, leads=True, env={"ME": "$(RANK)"}, late=("ME",))
    assert environment(planned(role), 0)["ME"] == "$(RANK)"


def test_of_one_that_starts_again_it_is_the_same_plan():
    whole = planned(*pools(1, 2))
    one = planned(*pools(1, 2), only=ReplicaName("workerpool1", 1))
    assert named(whole) == ["workerpool0-0", "workerpool1-0", "workerpool1-1"]
    assert (one.replicas, one.shared) == ([whole.replicas[2]], whole.shared)
