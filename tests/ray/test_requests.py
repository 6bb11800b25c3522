"""What the bridge is asked for."""

from turnout.clusters import Cluster
from turnout.engines.ray import RaySettings
from turnout.engines.ray.requests import bundle, submission
from turnout.engines.remote import Gang, RunnerCall
from turnout.job import Attempt, Launch, Program, Resources, Role, Spec
from turnout.job.resources import GIB

SETTINGS = RaySettings({})
CALL = RunnerCall("https://10.0.0.5:8470", "gpu", "the-token", "ab" * 32, "/runner.pyz", "cd" * 32, 60)


def test_the_settings_of_a_cluster():
    cluster = Cluster(
        engine="ray", address="10.0.0.1:6379", python="/opt/ray/bin/python", spread=True, resources={"rack": 1},
        accelerator="NPU", accelerator_type="910B",
    )  # fmt: skip
    assert RaySettings.of(cluster, {"A": "b"}) == RaySettings(
        {"A": "b"}, "10.0.0.1:6379", "/opt/ray/bin/python", True, {"rack": 1}, "NPU", "910B"
    )
    assert RaySettings.of(Cluster(engine="ray"), {}).address == "auto"


def test_what_a_replica_takes():
    assert bundle(Resources(), SETTINGS) == {"CPU": 1}
    assert bundle(Resources.of(0.5, 2 * GIB), SETTINGS) == {"CPU": 0.5, "memory": 2 * GIB}
    assert bundle(Resources.of(8, gpus=2), SETTINGS) == {"CPU": 8, "GPU": 2}


def test_custom_resources_and_accelerators():
    settings = SETTINGS._replace(resources={"rack": 0.5}, accelerator="NPU", accelerator_type="910B")
    assert bundle(Resources.of(1), settings) == {"CPU": 1, "rack": 0.5}
    assert bundle(Resources.of(1, gpus=8), settings) == {
        "CPU": 1,
        "NPU": 8,
        "accelerator_type:910B": 0.001,
        "rack": 0.5,
    }


def test_a_gang_is_one_placement_group_with_an_actor_for_each_replica():
    program = Program(("true",))
    roles = (Role("worker", program, replicas=2, leads=True, resources=Resources.of(4)), Role("ps", program))
    launch = Launch(Attempt(7, 1), "project", "tia", "job", Spec(roles))
    asked = submission(Gang("turnout-7.1", launch, CALL), SETTINGS)
    assert (asked["name"], asked["strategy"]) == ("turnout-7.1", "PACK")
    assert asked["bundles"] == [{"CPU": 4}, {"CPU": 4}, {"CPU": 1}]
    assert [one["name"] for one in asked["replicas"]] == ["worker-0", "worker-1", "ps-0"]
    assert asked["replicas"][0]["call"] == {
        "endpoint": "https://10.0.0.5:8470",
        "digest": "cd" * 32,
        "address": "gpu/7.1/worker-0",
        "patience": 60,
        "environment": {
            "TURNOUT_TOKEN": "the-token",
            "TURNOUT_PATIENCE": "60",
            "TURNOUT_ENFORCE_MEMORY": "1",
            "TURNOUT_FINGERPRINT": "ab" * 32,
        },
    }
    apart = submission(Gang("turnout-7.1", launch, CALL), SETTINGS._replace(spread=True))
    assert apart["strategy"] == "STRICT_SPREAD"
