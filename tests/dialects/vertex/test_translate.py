"""Custom jobs as jobs: pools, machines, programs, scheduling."""

import json
from typing import Any

import msgspec
import pytest

from tests.dialects.vertex.jobs import HERE, PREBUILT, container, job, package, pool, translated
from turnout import config
from turnout.dialects.vertex import errors
from turnout.dialects.vertex.custom_jobs.package_command import DIRECTORY
from turnout.dialects.vertex.installation import Installation
from turnout.errors import Invalid, NotFound, Unavailable
from turnout.job import Mount, Reason, Resources, WhenLeadSucceeds
from turnout.job.resources import GIB
from turnout.job.spec import Policy, Program
from turnout.service.images import ImageRules

DAY = 86_400


def policy(**scheduling: Any) -> Policy:
    return translated(job(spec={"scheduling": scheduling})).spec.policy


def program(
    document: dict[str, Any],
    images: dict[str, str] | None = None,
    runtimes: dict[str, config.RuntimeSettings] | None = None,
) -> Program:
    rules = ImageRules(images or {}, runtimes or {})
    place = HERE._replace(rules=rules, runtimes=runtimes or {})
    return translated(job(document), place).spec.roles[0].program


def test_a_job_of_one_container():
    new = translated(job(labels={"team": "vision"}))
    assert (new.project, new.dialect, new.scope, new.handle) == ("p1", "vertex", "vertex:us-central1", "")
    assert (new.name, new.cluster, new.labels) == ("test", "ap-beijing", {"label:team": "vision"})
    (role,) = new.spec.roles
    assert (role.name, role.replicas, role.leads, role.task_type) == ("workerpool0", 1, True, "chief")
    assert role.program.argv == ("echo", "hello")
    assert role.resources == Resources.of(cores=4, memory=15 * GIB)
    assert new.spec.working_dir == "/workspace"
    assert [note.partition(";")[0] for note in new.notes] == [
        "the image python:3.11 is not used: this machine's Python runs the program"
    ]
    assert role.program.notice.startswith("[turnout] the image python:3.11 is not used")
    assert msgspec.json.decode(new.document) == job(labels={"team": "vision"})


def test_four_pools_and_their_roles():
    new = translated(job(pool(), pool(replicaCount=3), pool(replicaCount="2"), pool()))
    assert [(role.name, role.replicas, role.task_type) for role in new.spec.roles] == [
        ("workerpool0", 1, "chief"),
        ("workerpool1", 3, "worker"),
        ("workerpool2", 2, "ps"),
        ("workerpool3", 1, "evaluator"),
    ]
    assert [role.leads for role in new.spec.roles] == [True, False, False, False]
    assert {role.when_lead_succeeds for role in new.spec.roles} == {WhenLeadSucceeds.END}


def test_an_empty_pool_keeps_the_position_of_the_others():
    new = translated(job(pool(), {}, pool()))
    assert [(role.name, role.task_type) for role in new.spec.roles] == [
        ("workerpool0", "chief"),
        ("workerpool2", "ps"),
    ]
    assert msgspec.json.decode(new.document)["jobSpec"]["workerPoolSpecs"][1] == {}


@pytest.mark.parametrize(
    ("machine", "resources"),
    [
        ({"machineType": "n1-highcpu-16"}, Resources.of(cores=16, memory=int(14.4 * GIB))),
        ({"machineType": "e2-highmem-2"}, Resources.of(cores=2, memory=16 * GIB)),
        ({"machineType": "a2-highgpu-4g"}, Resources.of(cores=48, memory=340 * GIB, gpus=4)),
        (
            {"machineType": "n1-standard-4", "acceleratorType": "NVIDIA_TESLA_K80", "acceleratorCount": 1},
            Resources.of(cores=4, memory=15 * GIB, gpus=1),
        ),
        (
            {"machineType": "g2-standard-24", "acceleratorType": 11, "acceleratorCount": 2},
            Resources.of(cores=24, memory=96 * GIB, gpus=2),
        ),
    ],
    ids=lambda value: value["machineType"] if isinstance(value, dict) else "",
)
def test_machines(machine: dict[str, Any], resources: Resources):
    assert translated(job(pool(machineSpec=machine))).spec.roles[0].resources == resources


def test_there_are_no_tpus():
    with pytest.raises(Unavailable, match="Resources are insufficient in region: us-central1"):
        translated(job(pool(machineSpec={"machineType": "ct5lp-hightpu-4t", "tpuTopology": "2x2"})))


MAPPED: dict[str, Any] = {
    "images": {"gcr.io/p/train": "mine"},
    "runtimes": {
        "mine": config.RuntimeSettings(entrypoint=["python", "/app/train.py"], cmd=["--epochs", "3"])
    },
}


@pytest.mark.parametrize(
    ("fields", "argv"),
    [
        ({}, ("python", "/app/train.py", "--epochs", "3")),
        ({"args": ["-x"]}, ("python", "/app/train.py", "-x")),
        ({"command": ["sh"]}, ("sh",)),
        ({"command": ["sh"], "args": ["-x"]}, ("sh", "-x")),
    ],
)
def test_command_and_args_are_dockers(fields: dict[str, Any], argv: tuple[str, ...]):
    spec = {"imageUri": "gcr.io/p/train:v1"} | fields
    found = program(pool(containerSpec=spec), **MAPPED)
    assert found.argv == argv
    assert found.runtime == "mine"


@pytest.mark.parametrize(
    "image",
    ["gcr.io/p/train", "gcr.io/p/train:v1", "gcr.io/p/train@sha256:0a", "gcr.io/p/train:v1@sha256:0a"],
)
def test_an_image_is_found_without_its_tag(image: str):
    assert program(pool(containerSpec={"imageUri": image}), **MAPPED).runtime == "mine"


def test_an_image_on_a_registry_with_a_port():
    images = {"images": {"localhost:5000/train": "mine"}, "runtimes": MAPPED["runtimes"]}
    assert program(pool(containerSpec={"imageUri": "localhost:5000/train:v1"}), **images).runtime == "mine"


@pytest.mark.parametrize("image", ["gcr.io/p/other:v1", PREBUILT])
def test_an_image_whose_entry_point_nobody_knows(image: str):
    with pytest.raises(Invalid) as raised:
        translated(job(pool(containerSpec={"imageUri": image, "args": ["-x"]})))
    assert raised.value.field == "jobSpec.workerPoolSpecs[0].containerSpec.imageUri"
    assert f'[images] "{image.rpartition(":")[0]}"' in raised.value.message
    assert errors.error_response(raised.value).status == "FAILED_PRECONDITION"


def test_googles_own_images_ask_for_a_runtime():
    found = program(container(imageUri="us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest"))
    assert (found.runtime, found.wants) == ("tf-gpu.2-17.py310", "TensorFlow 2.17 on Python 3.10")


def test_python_packages():
    uris = ["gs://stage/a/dep-1.whl", "gs://stage/b/trainer-0.1.tar.gz"]
    new = translated(job(package(packageUris=uris, args=["--lr", "0.1"]), package(packageUris=uris[:1])))
    first, second = new.spec.roles
    directory, count, module, *rest = first.program.argv[4:]
    assert (directory, count, module) == (DIRECTORY, "2", "trainer.task")
    assert rest == ["0/dep-1.whl", "1/trainer-0.1.tar.gz", "--lr", "0.1"]
    assert second.program.argv[-1] == "0/dep-1.whl"
    assert first.program.wants == "scikit-learn 1.6"
    assert Mount(uris[1], f"{DIRECTORY}/1", read_only=True) in new.spec.mounts
    assert Mount("gs://stage", "/gcs/stage") in new.spec.mounts
    assert len(new.spec.mounts) == 3


def test_a_job_may_run_seven_days():
    assert translated(job()).spec.policy.time_limit == 7 * DAY
    assert policy(timeout="90.5s").time_limit == 90.5
    assert policy(timeout="0s").time_limit == 7 * DAY


def test_crashes_and_lost_machines_are_tried_again():
    crashes, platform, internal = translated(job()).spec.policy.retries
    assert set(crashes.on) == {Reason.KILLED, Reason.PROGRAM_FAILED}
    assert (crashes.codes, crashes.times) == ((134, 139), 3)
    assert set(platform.on) == {Reason.NODE_LOST, Reason.KILLED}
    assert (platform.times, platform.codes, platform.not_codes) == (3, (), (134, 139))
    assert (internal.on, internal.times, internal.not_codes) == ((Reason.STAGING_FAILED,), 2, (0,))


def test_a_worker_that_is_lost_is_started_again_in_its_place():
    in_place = translated(job()).spec.policy.in_place
    assert in_place is not None
    assert (set(in_place.on), in_place.times) == ({Reason.NODE_LOST, Reason.KILLED}, 5)
    assert in_place.not_codes == (134, 139)


def test_the_whole_job_starts_again_instead_where_that_is_wanted():
    together = policy(restartJobOnWorkerRestart=True)
    assert (together.in_place, [rule.times for rule in together.retries]) == (None, [3, 8, 2])


def test_nothing_is_tried_again_where_that_is_not_wanted():
    for wish in ({}, {"restartJobOnWorkerRestart": True}):
        never = policy(disableRetries=True, **wish)
        assert (never.retries, never.in_place) == ((), None)


@pytest.mark.parametrize("strategy", ["SPOT", "LOW_COST"])
def test_a_cheap_job_gives_way(strategy: str):
    cheap = policy(strategy=strategy)
    assert (cheap.preemptible, cheap.priority) == (True, 0)


@pytest.mark.parametrize("strategy", ["STANDARD", "ON_DEMAND", 0])
def test_other_jobs_do_not(strategy: object):
    usual = policy(strategy=strategy, maxWaitDuration="60s")
    assert (usual.preemptible, usual.priority, usual.max_wait) == (False, 1, None)


@pytest.mark.parametrize(("duration", "seconds"), [("60s", 60), ("0s", None), (None, DAY)])
def test_a_flexible_start_waits_so_long(duration: str | None, seconds: float | None):
    assert policy(strategy="FLEX_START", maxWaitDuration=duration).max_wait == seconds


def test_a_persistent_resource_is_a_cluster():
    assert translated(job(spec={"persistentResourceId": "big"})).cluster == "big"
    with pytest.raises(NotFound) as raised:
        translated(job(spec={"persistentResourceId": "none"}))
    assert raised.value.field == "jobSpec.persistentResourceId"
    assert raised.value.message.endswith("there is no persistent resource 'none'; there are big.")


def test_shells_dashboards_and_keys():
    plain = translated(job()).spec
    assert (plain.shell, plain.program_page, plain.key) == (False, False, "")
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    access = {"enableWebAccess": True, "enableDashboardAccess": True}
    spec = translated(job(spec=access, encryptionSpec={"kmsKeyName": key})).spec
    assert (spec.shell, spec.program_page, spec.key) == (True, True, key)


def test_the_place_follows_from_the_settings():
    table = {
        "images": {"gcr.io/p/train": "mine"},
        "clusters": {"big": {}},
        "storage": {"buckets": {"real": {"url": "s3://real"}}},
    }
    settings = config.load(flags=table)
    place = Installation.of(settings, "p1", "europe-west4")
    assert (place.project, place.location, place.cluster) == ("p1", "europe-west4", "ap-beijing")
    assert "big" in place.clusters
    assert place.rules.choose("gcr.io/p/train:1", "p1").runtime == "mine"
    assert place.remote("real")
    assert not place.remote("other")
    everything = config.load(flags={"storage": {"schemes": {"gs": {"url": "gs://"}}}})
    assert Installation.of(everything, "p1", "europe-west4").remote("other")


def test_the_spec_is_told_to_the_replicas():
    document = job(pool(replicaCount=1))
    assert json.loads(translated(document).spec.config_job) == document["jobSpec"] | {
        "workerPoolSpecs": [pool(replicaCount="1")]
    }
    large = translated(job(container(env=[{"name": "A", "value": "x" * 70_000}])))
    assert large.spec.config_job == ""
    assert any("too large for a variable" in note for note in large.notes)


def test_every_field_comes_back():
    document = job(
        pool(
            replicaCount="1",
            machineSpec={
                "machineType": "a3-highgpu-1g",
                "acceleratorType": "NVIDIA_H100_80GB",
                "acceleratorCount": 1,
                "gpuPartitionSize": "1g.10gb",
                "reservationAffinity": {
                    "reservationAffinityType": "SPECIFIC_RESERVATION",
                    "key": "compute.googleapis.com/reservation-name",
                    "values": ["projects/p/zones/z/reservations/r"],
                },
            },
            nfsMounts=[{"server": "10.0.0.2", "path": "/x", "mountPoint": "d"}],
            diskSpec={"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100},
            containerSpec={
                "imageUri": "a",
                "command": ["b"],
                "args": ["c"],
                "env": [{"name": "D", "value": "e"}],
            },
        ),
        package(env=[{"name": "D", "value": "e"}], args=["f"]),
        spec={
            "persistentResourceId": "big",
            "scheduling": {
                "timeout": "60s",
                "restartJobOnWorkerRestart": True,
                "strategy": "SPOT",
                "disableRetries": True,
                "maxWaitDuration": "60s",
            },
            "serviceAccount": "a@b.c",
            "network": "projects/1/global/networks/n",
            "reservedIpRanges": ["r"],
            "pscInterfaceConfig": {
                "networkAttachment": "projects/p/regions/r/networkAttachments/a",
                "dnsPeeringConfigs": [{"domain": "x.com.", "targetProject": "p", "targetNetwork": "n"}],
            },
            "baseOutputDirectory": {"outputUriPrefix": "gs://out/x"},
            "protectedArtifactLocationId": "eu",
            "tensorboard": "projects/p/locations/l/tensorboards/t",
            "enableWebAccess": True,
            "enableDashboardAccess": True,
            "experiment": "projects/p/locations/l/metadataStores/s/contexts/e",
            "experimentRun": "projects/p/locations/l/metadataStores/s/contexts/e-r",
            "models": ["projects/p/locations/l/models/m@1"],
        },
        labels={"a": "b"},
        encryptionSpec={"kmsKeyName": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"},
    )
    assert msgspec.json.decode(translated(document).document) == document


def test_a_boot_disk_is_what_the_workspace_may_hold_but_no_more_than_the_settings_allow():
    asked = job(pool(diskSpec={"bootDiskSizeGb": 200}))
    for most, notes in ((0, False), (200 * GIB, False), (100 * GIB, True)):
        new = translated(asked, HERE._replace(disk=most))
        assert new.spec.lead.resources.disk == 200 * GIB
        told = "jobSpec.workerPoolSpecs[0].diskSpec.bootDiskSizeGb: a replica has at most 100 GB here"
        assert any(told in note for note in new.notes) == notes
    assert translated(job()).spec.lead.resources.disk == 0
