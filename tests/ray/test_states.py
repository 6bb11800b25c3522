"""What Ray's messages become. KILLED, REMOVED and DIED were recorded from Ray 2.60; NODE_IN_TABLE was not."""

from typing import Any

import pytest

from turnout.engines.ray.states import Cluster, cluster_job, last_words
from turnout.engines.remote import EndKind, Gone, Phase

PREFIX = "The actor died unexpectedly before finishing this task.\n\tclass_name: Replica\n\tip: 127.0.0.4\n"
KILLED = PREFIX + "The actor is dead because it was killed by `ray.kill`."
REMOVED = (
    PREFIX
    + "The actor is dead because its worker process has died. Worker exit type: INTENDED_SYSTEM_EXIT Worker exit "
    "detail: Destroying worker since its placement group was removed. Placement group id: 02014ae4, bundle index: 2"
)
DIED = (
    PREFIX
    + "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit "
    "detail: Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: "
    "(1) the process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called, or "
    "(3) the worker crashed unexpectedly due to SIGSEGV or another unexpected error."
)
KILLED_IN_TABLE = 'actor_died_error_context {\n  error_message: "…"\n  reason: RAY_KILL\n}\n'
NODE_IN_TABLE = 'actor_died_error_context {\n  error_message: "…"\n  reason: NODE_DIED\n}\n'
BUSY = Cluster(({"CPU": 4, "memory": 8 << 30}, {"CPU": 4, "memory": 8 << 30, "GPU": 2}), {"CPU": 1})


def gang(state: str = "CREATED", *ends: dict[str, Any] | None, **details: Any) -> dict[str, Any]:
    members = [{"name": f"worker-{index}", "over": end} for index, end in enumerate(ends or (None,))]
    found = {"handle": "c57a", "name": "turnout-1.1", "state": state, "members": members}
    return found | {"bundles": [{"CPU": 1.0}], "strategy": "PACK", "nodes": ["10.0.0.7"]} | details


def died(text: str, error: str = "ActorDiedError") -> dict[str, Any]:
    return {"error": error, "text": text}


def exited(code: int = 0, words: str = "") -> dict[str, Any]:
    return {"code": code, "words": words}


def test_a_gang_that_runs():
    job = cluster_job(gang())
    assert (job.phase, job.nodes, dict(job.gone)) == (Phase.RUNNING, "10.0.0.7", {})


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (KILLED, EndKind.CANCELLED, "Ray: its actor was killed by `ray.kill`"),
        (KILLED_IN_TABLE, EndKind.CANCELLED, "Ray: its actor was killed by `ray.kill`"),
        (REMOVED, EndKind.CANCELLED, "Ray: its placement group was removed"),
        (NODE_IN_TABLE, EndKind.NODE_LOST, "Ray: its node was lost"),
        (DIED, EndKind.EXITED, ""),
    ],
)
def test_why_an_actor_is_dead(text: str, kind: EndKind, words: str):
    job = cluster_job(gang("CREATED", None, died(text)))
    assert job.phase is Phase.RUNNING, "the other replica goes on"
    assert job.gone == {"worker-1": Gone(kind, words)}


def test_a_gang_of_which_all_have_ended_ended_for_the_worst_reason():
    job = cluster_job(gang("REMOVED", exited(), died(NODE_IN_TABLE), died(KILLED)))
    assert (job.phase, job.end, job.why) == (Phase.ENDED, EndKind.NODE_LOST, "Ray: its node was lost")
    assert job.gone["worker-0"] == Gone(EndKind.EXITED)


def test_a_placement_group_that_somebody_removed():
    job = cluster_job(gang("REMOVED", None))
    assert (job.phase, job.end) == (Phase.ENDED, EndKind.CANCELLED)


def test_an_actor_that_cannot_be_made():
    job = cluster_job(gang("CREATED", died("No module named 'x'", "RaySystemError")))
    assert (job.phase, job.end) == (Phase.ENDED, EndKind.FAILED)
    assert job.why == "Ray: its actor could not be started: No module named 'x'"


def test_the_last_words_are_the_runners_or_rays():
    found = gang("REMOVED", exited(75, "turnout runner: no token"), died(DIED))
    assert last_words(found, "worker-0") == "turnout runner: no token"
    assert last_words(found, "worker-1").startswith("The actor died unexpectedly before finishing this task.")
    assert last_words(found, "worker-2") == ""


@pytest.mark.parametrize(
    ("bundles", "strategy", "why"),
    [
        (
            [{"CPU": 4.0}] * 2,
            "PACK",
            "waiting for resources: it needs 8 CPU for 2 replicas; 1 CPU of 8 CPU are free",
        ),
        (
            [{"CPU": 64.0}],
            "PACK",
            "no node has 64 CPU for a replica (the most that a node has: 4 CPU): it waits for such a node",
        ),
        (
            [{"CPU": 1.0, "memory": 16 << 30}],
            "PACK",
            (
                "no node has 1 CPU, 16 GiB memory for a replica (the most that a node has: 4 CPU, 8 GiB memory): "
                "it waits for such a node"
            ),
        ),
        (
            [{"CPU": 1.0}] * 3,
            "STRICT_SPREAD",
            "it needs a node for each of its 3 replicas, and the cluster has 2 nodes",
        ),
        (
            [{"CPU": 1.0, "GPU": 2.0}],
            "PACK",
            "waiting for resources: it needs 1 CPU, 2 GPU for 1 replica; 0 GPU of 2 GPU are free",
        ),
    ],
)
def test_why_a_gang_waits(bundles: list[dict[str, float]], strategy: str, why: str):
    job = cluster_job(gang("PENDING", bundles=bundles, strategy=strategy), BUSY)
    assert (job.phase, job.why) == (Phase.PENDING, f"Ray: {why}")
