"""Environment of a Vertex replica: names, ranks, cluster maps, and references in the job's own variables."""

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
    *roles: Role, layout: Layout = BOXED, config_job: str = "", only: ReplicaName | None = None
) -> GangPlan:
    launch = Launch(Attempt(7, 1), "default", "vertex", "my job", Spec(roles, config_job=config_job))
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
    """As the supervisor builds it."""
    replica = plan.replicas[rank]
    return replica.env | {name: plan.shared.maps[name] + task for name, task in replica.tasks.items()}


def named(plan: GangPlan) -> list[str]:
    return [replica.name for replica in plan.replicas]


def test_a_single_replica_has_no_rank_and_no_tf_config():
    told = environment(planned(*pools(1), config_job='{"a":1}'), 0)
    assert not told.keys() & {"TF_CONFIG", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK"}
    spec = json.loads(told["CLUSTER_SPEC"])
    assert (spec["cluster"], spec["job"]) == ({"workerpool0": [f"{told['HOSTNAME']}:10000"]}, {"a": 1})


@pytest.mark.parametrize("layout", [BOXED, BARE])
def test_replicas_use_host_names_in_a_sandbox_and_addresses_without(layout: Layout):
    plan = planned(*pools(1, 2), layout=layout)
    told = environment(plan, 2)
    assert (told["RANK"], told["WORLD_SIZE"]) == ("2", "3")
    lead = environment(plan, 0)["HOSTNAME"] if layout is BOXED else "127.64.0.1"
    assert told["MASTER_ADDR"] == lead
    for name in ("TF_CONFIG", "CLUSTER_SPEC"):
        assert json.loads(told[name])["cluster"]["workerpool0"] == [f"{lead}:10000"]
    assert f"127.64.0.1 {lead}\n" in plan.shared.hosts or layout is BARE


def test_references_to_variables_that_are_set_at_the_start():
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


def test_an_unknown_reference_is_kept():
    role = Role("workerpool0", PROGRAM, leads=True, env={"ME": "$(RANK)"}, late=("ME",))
    assert environment(planned(role), 0)["ME"] == "$(RANK)"


def test_a_restarted_replica_has_the_same_plan():
    whole = planned(*pools(1, 2))
    one = planned(*pools(1, 2), only=ReplicaName("workerpool1", 1))
    assert named(whole) == ["workerpool0-0", "workerpool1-0", "workerpool1-1"]
    assert (one.replicas, one.shared) == ([whole.replicas[2]], whole.shared)
