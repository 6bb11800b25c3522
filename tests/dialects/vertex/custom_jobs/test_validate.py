"""What is refused, which field is blamed and what would be right."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.vertex.jobs import PREBUILT, container, job, package, pool, translated
from turnout.errors import Invalid, TurnoutError

FIRST = "jobSpec.workerPoolSpecs[0]"


def refused(document: dict[str, Any], field: str) -> str:
    with pytest.raises(Invalid) as raised:
        translated(document)
    assert raised.value.field == field
    assert raised.value.message.startswith(field)
    return raised.value.message


def machine(**fields: Any) -> dict[str, Any]:
    return job(pool(machineSpec={"machineType": "n1-standard-4"} | fields))


def test_a_display_name_has_1_to_128_characters():
    assert translated(job(displayName="训" * 128)).name == "训" * 128
    assert refused(job(displayName="x" * 129), "displayName") == (
        "displayName: it has 129 characters; at most 128 are allowed."
    )
    assert refused(job(displayName=""), "displayName") == "displayName is required."
    refused(job(displayName="a\0b"), "displayName")


@pytest.mark.parametrize(
    "label", [("team", "vision"), ("é_1-x", ""), ("团队", "视觉"), ("x" * 64, "y" * 64), ("1", "-")]
)
def test_a_label(label: tuple[str, str]):
    assert translated(job(labels=dict([label]))).labels == {f"label:{label[0]}": label[1]}


@pytest.mark.parametrize(
    "label", [("", "x"), ("Team", "x"), ("a b", "x"), ("a", "X"), ("a", "x" * 65), ("É", "x"), ("a.b", "x")]
)
def test_what_is_no_label(label: tuple[str, str]):
    assert "lower-case letters, digits, '_' and '-'" in refused(job(labels=dict([label])), "labels")


def test_pools():
    refused({"displayName": "x"}, "jobSpec")
    refused(job(spec={"workerPoolSpecs": []}), "jobSpec.workerPoolSpecs")
    refused(job(*[pool()] * 5), "jobSpec.workerPoolSpecs")
    refused(job({}), f"{FIRST}.containerSpec")
    assert "put the others into the second pool" in refused(
        job(pool(replicaCount=2)), f"{FIRST}.replicaCount"
    )
    refused(job(pool(), pool(replicaCount=-1)), "jobSpec.workerPoolSpecs[1].replicaCount")
    refused(job(pool(), {"replicaCount": 2}), "jobSpec.workerPoolSpecs[1].containerSpec")


def test_the_field_is_spelt_as_the_caller_did():
    document = {
        "display_name": "x",
        "job_spec": {"worker_pool_specs": [{"container_spec": {"image_uri": "a"}}]},
    }
    refused(document, "job_spec.worker_pool_specs[0].machine_spec.machine_type")


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"imageUri": ""}, "imageUri"),
        ({"imageUri": "a b"}, "imageUri"),
        ({"command": [""]}, "command[0]"),
        ({"command": ["a\0"]}, "command[0]"),
        ({"args": ["ok", "a\0"]}, "args[1]"),
        ({"args": ["x" * 60_000, "y" * 60_000]}, "args"),
        ({"args": ["训" * 50_000]}, "args[0]"),
        ({"env": [{"name": "", "value": "x"}]}, "env[0].name"),
        ({"env": [{"name": "1A", "value": "x"}]}, "env[0].name"),
        ({"env": [{"name": "A-B", "value": "x"}]}, "env[0].name"),
        ({"env": [{"name": "A", "value": "\0"}]}, "env[0].value"),
        ({"env": [{"name": "A", "value": "x" * 140_000}]}, "env[0].value"),
        ({"env": [{"name": f"A{n}", "value": ""} for n in range(101)]}, "env"),
    ],
)
def test_a_container(changed: dict[str, Any], field: str):
    refused(job(container(**changed)), f"{FIRST}.containerSpec.{field}")


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"executorImageUri": ""}, "executorImageUri"),
        ({"packageUris": []}, "packageUris"),
        ({"packageUris": ["gs://b/x.tar.gz"] * 101}, "packageUris"),
        ({"packageUris": ["s3://b/x.tar.gz"]}, "packageUris[0]"),
        ({"packageUris": ["gs://b/dir/"]}, "packageUris[0]"),
        ({"packageUris": ["gs://bucket"]}, "packageUris[0]"),
        ({"packageUris": ["gs://b-b/../x.whl"]}, "packageUris[0]"),
        ({"packageUris": ["gs://b-b/x\n.whl"]}, "packageUris[0]"),
        ({"pythonModule": ""}, "pythonModule"),
        ({"pythonModule": "a b"}, "pythonModule"),
        ({"pythonModule": "-c"}, "pythonModule"),
        ({"env": [{"name": "="}]}, "env[0].name"),
    ],
)
def test_a_package(changed: dict[str, Any], field: str):
    refused(job(package(**changed)), f"{FIRST}.pythonPackageSpec.{field}")


def test_machine_types():
    at = f"{FIRST}.machineSpec.machineType"
    assert "did you mean n1-standard-8" in refused(machine(machineType="n1-standart-8"), at)
    refused(machine(machineType="n1-standard-2"), at)
    refused(machine(machineType=""), at)
    refused(job(pool(machineSpec=None)), at)


@pytest.mark.parametrize(
    ("spec", "field", "told"),
    [
        ({"acceleratorCount": 1}, "acceleratorType", "required with acceleratorCount"),
        ({"acceleratorType": "NVIDIA_TESLA_T4"}, "acceleratorCount", "required with acceleratorType"),
        ({"acceleratorType": 5, "acceleratorCount": 3}, "acceleratorCount", "1, 2 or 4 of NVIDIA_TESLA_T4, not 3"),
        ({"acceleratorType": 5, "acceleratorCount": -1}, "acceleratorCount", "at least 0"),
        ({"acceleratorType": "NVIDIA_L4", "acceleratorCount": 1}, "acceleratorType", "cannot have NVIDIA_L4"),
        (
            {"machineType": "e2-standard-4", "acceleratorType": 5, "acceleratorCount": 1},
            "acceleratorType",
            "it supports no accelerators; some n1 machines do",
        ),
        (
            {"machineType": "n1-standard-32", "acceleratorType": "NVIDIA_TESLA_V100", "acceleratorCount": 2},
            "acceleratorCount",
            "4 or 8",
        ),
        (
            {"machineType": "a2-highgpu-2g", "acceleratorType": "NVIDIA_TESLA_A100", "acceleratorCount": 1},
            "acceleratorCount",
            "a2-highgpu-2g has 2, not 1",
        ),
        (
            {"machineType": "g2-standard-4", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1},
            "acceleratorType",
            "g2-standard-4 has NVIDIA_L4",
        ),
        ({"machineType": "cloud-tpu", "acceleratorType": "TPU_V3", "acceleratorCount": 9}, "acceleratorCount", "32"),
        ({"tpuTopology": "2x2"}, "tpuTopology", "on a machine with TPUs"),
        (
            {"machineType": "a3-highgpu-1g", "gpuPartitionSize": "tiny", "acceleratorType": 13, "acceleratorCount": 1},
            "gpuPartitionSize",
            "1g.10gb",
        ),
        (
            {"machineType": "a3-highgpu-8g", "gpuPartitionSize": "1g.10gb"},
            "acceleratorCount",
            "must be 1",
        ),
        ({"reservationAffinity": {"key": "x"}}, "reservationAffinity.reservationAffinityType", "required"),
        (
            {"reservationAffinity": {"reservationAffinityType": 1, "values": ["x"]}},
            "reservationAffinity.values",
            "SPECIFIC_RESERVATION only",
        ),
        (
            {"reservationAffinity": {"reservationAffinityType": "SPECIFIC_RESERVATION", "key": "x"}},
            "reservationAffinity.key",
            "compute.googleapis.com/reservation-name",
        ),
    ],
)  # fmt: skip
def test_accelerators(spec: dict[str, Any], field: str, told: str):
    assert told in refused(machine(**spec), f"{FIRST}.machineSpec.{field}")


@pytest.mark.parametrize(
    ("disk", "field"),
    [
        ({"bootDiskSizeGb": 99}, "bootDiskSizeGb"),
        ({"bootDiskSizeGb": 64_001}, "bootDiskSizeGb"),
        ({"bootDiskType": "ssd"}, "bootDiskType"),
    ],
)
def test_disks(disk: dict[str, Any], field: str):
    refused(job(pool(diskSpec=disk)), f"{FIRST}.diskSpec.{field}")


@pytest.mark.parametrize(
    ("mount", "field"),
    [
        ({"path": "/x", "mountPoint": "d"}, "server"),
        ({"server": "a b", "path": "/x", "mountPoint": "d"}, "server"),
        ({"server": "10.0.0.2", "path": "x", "mountPoint": "d"}, "path"),
        ({"server": "10.0.0.2", "path": "/x/../y", "mountPoint": "d"}, "path"),
        ({"server": "10.0.0.2", "path": "/x"}, "mountPoint"),
        ({"server": "10.0.0.2", "path": "/x", "mountPoint": "../etc"}, "mountPoint"),
        ({"server": "10.0.0.2", "path": "/x", "mountPoint": "/d"}, "mountPoint"),
    ],
)
def test_nfs_mounts(mount: dict[str, Any], field: str):
    refused(job(pool(nfsMounts=[mount])), f"{FIRST}.nfsMounts[0].{field}")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"network": "default"}, "network"),
        ({"tensorboard": "tb"}, "tensorboard"),
        ({"experiment": "x"}, "experiment"),
        ({"experimentRun": "x"}, "experimentRun"),
        ({"serviceAccount": "me"}, "serviceAccount"),
        ({"reservedIpRanges": [""]}, "reservedIpRanges[0]"),
        ({"models": [""]}, "models[0]"),
        ({"baseOutputDirectory": {}}, "baseOutputDirectory.outputUriPrefix"),
        ({"baseOutputDirectory": {"outputUriPrefix": "/tmp"}}, "baseOutputDirectory.outputUriPrefix"),
        ({"baseOutputDirectory": {"outputUriPrefix": "gs://b/../c"}}, "baseOutputDirectory.outputUriPrefix"),
        ({"scheduling": {"timeout": "-1s"}}, "scheduling.timeout"),
        ({"scheduling": {"maxWaitDuration": "-1s"}}, "scheduling.maxWaitDuration"),
        ({"scheduling": {"strategy": 6, "timeout": "604801s"}}, "scheduling.timeout"),
        ({"pscInterfaceConfig": {"networkAttachment": "a/b"}}, "pscInterfaceConfig.networkAttachment"),
        (
            {"pscInterfaceConfig": {"dnsPeeringConfigs": [{"domain": "x.com"}]}},
            "pscInterfaceConfig.dnsPeeringConfigs[0].domain",
        ),
    ],
)
def test_the_spec(spec: dict[str, Any], field: str):
    refused(job(spec=spec), f"jobSpec.{field}")


def test_flex_start_wants_equal_machines():
    other = pool(machineSpec={"machineType": "n1-standard-8"})
    flexible = {"scheduling": {"strategy": "FLEX_START"}}
    refused(job(pool(), {}, other, spec=flexible), "jobSpec.workerPoolSpecs[2].machineSpec")
    assert translated(job(pool(), {}, pool(), spec=flexible))


def test_encryption_keys():
    name = "projects/p/locations/{}/keyRings/r/cryptoKeys/k"
    assert translated(job(encryptionSpec={"kmsKeyName": name.format("us-central1")}))
    at = "encryptionSpec.kmsKeyName"
    assert "they must be in one location" in refused(
        job(encryptionSpec={"kmsKeyName": name.format("eu")}), at
    )
    refused(job(encryptionSpec={"kmsKeyName": "k"}), at)
    refused(job(encryptionSpec={}), at)


WHOLE = job(
    pool(
        machineSpec={"machineType": "n1-standard-4", "acceleratorType": 5, "acceleratorCount": 1},
        diskSpec={"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100},
        nfsMounts=[{"server": "10.0.0.2", "path": "/x", "mountPoint": "d"}],
    ),
    {},
    {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "2"}
    | {
        "pythonPackageSpec": {
            "executorImageUri": PREBUILT,
            "packageUris": ["gs://b-b/p.whl"],
            "pythonModule": "m",
        }
    },
    spec={
        "scheduling": {"timeout": "60s", "strategy": "SPOT"},
        "baseOutputDirectory": {"outputUriPrefix": "gs://b-b/out"},
    },
    labels={"a": "b"},
)
ODD = st.sampled_from(
    [None, "", 0, -1, 2.5, "x", [], {}, [None], [""], {"x": 1}, "gs://", "/..", "\0", True, 1 << 70]
)


@given(st.randoms(use_true_random=False), ODD)
def test_a_document_with_something_odd_in_it_is_run_or_refused(random: Any, odd: object):
    """Never anything but an error of ours."""
    with contextlib.suppress(TurnoutError):
        translated(_with(WHOLE, random, odd))


def _with(value: Any, random: Any, odd: object) -> Any:
    """A copy with one thing in it replaced."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.15:
        return odd
    if isinstance(value, list):
        chosen = random.randrange(len(value))
        return [_with(one, random, odd) if index == chosen else one for index, one in enumerate(value)]
    chosen = random.choice(sorted(value))
    return value | {chosen: _with(value[chosen], random, odd)}
