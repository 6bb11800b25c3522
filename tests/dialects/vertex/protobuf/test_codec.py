"""Protobuf's JSON: everything that Google's own parser takes, and its errors."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.vertex.jobs import job, package, pool
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.wire import AcceleratorType, CustomJob, Scheduling
from turnout.errors import Invalid, TurnoutError


def read(document: Any) -> CustomJob:
    return codec.custom_job(msgspec.json.encode(document)).message


def kept(document: Any) -> Any:
    return codec.encode(read(document))


def refused(document: Any) -> Invalid:
    with pytest.raises(Invalid) as raised:
        read(document)
    return raised.value


def test_what_the_python_sdk_sends():
    """Numbers for enums, text for 64-bit numbers, pretty-printed."""
    document = job(
        pool(
            replicaCount="1",
            machineSpec={"machineType": "n1-standard-4", "acceleratorType": 5, "acceleratorCount": 1},
            diskSpec={"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100},
        ),
        spec={"scheduling": {"timeout": "3600.500s", "strategy": 4}},
    )
    read = codec.custom_job(json.dumps(document, indent=2).encode()).message
    assert read.job_spec is not None
    first = read.job_spec.worker_pool_specs[0]
    assert first.machine_spec is not None
    assert first.machine_spec.accelerator_type is AcceleratorType.NVIDIA_TESLA_T4
    assert first.replica_count == 1
    assert read.job_spec.scheduling == Scheduling(
        timeout=3_600_500_000_000, strategy=Scheduling.Strategy.SPOT
    )
    spec = codec.encode(read)["jobSpec"]
    assert spec["workerPoolSpecs"][0]["machineSpec"]["acceleratorType"] == "NVIDIA_TESLA_T4"
    assert spec["workerPoolSpecs"][0]["replicaCount"] == "1"
    assert spec["scheduling"] == {"timeout": "3600.500s", "strategy": "SPOT"}


def test_snake_case_is_the_same_job():
    snake = {"display_name": "x", "job_spec": {"worker_pool_specs": [{"replica_count": 2}]}}
    camel = {"displayName": "x", "jobSpec": {"workerPoolSpecs": [{"replicaCount": 2}]}}
    assert kept(snake) == kept(camel)


@pytest.mark.parametrize("count", [2, "2", 2.0, "2.0", "2e0", "20e-1"], ids=repr)
def test_a_64_bit_number_can_be_spelt_in_many_ways(count: object):
    assert kept(job(pool(replicaCount=count)))["jobSpec"]["workerPoolSpecs"][0]["replicaCount"] == "2"


@pytest.mark.parametrize(
    "count",
    [2.5, "x", " 2", "2 ", "", True, [], {}, 1 << 63, "9223372036854775808", "1e999999999", "٢"],
    ids=repr,
)
def test_what_is_no_64_bit_number(count: object):
    refused(job(pool(replicaCount=count)))


@pytest.mark.parametrize("strategy", ["SPOT", 4, "4", 4.0], ids=repr)
def test_an_enum_is_a_name_or_a_number(strategy: object):
    assert kept(job(spec={"scheduling": {"strategy": strategy}}))["jobSpec"]["scheduling"] == {
        "strategy": "SPOT"
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1s", "1s"),
        ("1.5s", "1.500s"),
        ("0.000000001s", "0.000000001s"),
        ("1.000200s", "1.000200s"),
        ("-1.5s", "-1.500s"),
        ("0s", "0s"),
    ],
)
def test_durations(text: str, shown: str):
    assert kept(job(spec={"scheduling": {"timeout": text}}))["jobSpec"]["scheduling"]["timeout"] == shown


@pytest.mark.parametrize(
    "text",
    ["1", 1, "1 s", "1.s", ".5s", "1.0000000001s", "1e3s", "999999999999s", "s", ""],
    ids=repr,
)
def test_what_is_no_duration(text: object):
    assert "a duration is text such as" in refused(job(spec={"scheduling": {"timeout": text}})).message


def test_null_and_zero_are_not_set():
    """As in proto3; an empty message is something, though: it keeps its place."""
    document = {
        "displayName": "x",
        "labels": None,
        "encryptionSpec": None,
        "jobSpec": {
            "workerPoolSpecs": [{"replicaCount": 0, "containerSpec": None}, {}],
            "enableWebAccess": False,
        },
    }
    assert kept(document) == {"displayName": "x", "jobSpec": {"workerPoolSpecs": [{}, {}]}}


def test_what_only_the_service_writes_is_ignored():
    """So that an answer can be sent again as it is."""
    answer = job(
        name="projects/p/locations/l/customJobs/1",
        state="JOB_STATE_FAILED",
        error={"code": 3},
        createTime="?",
    )
    assert kept(answer) == kept(job())


def test_an_unknown_field():
    error = refused(job(pool(machineSpec={"machineTyp": "n1-standard-4"})))
    assert error.message == (
        'Invalid JSON payload received. Unknown name "machineTyp" at '
        "'custom_job.job_spec.worker_pool_specs[0].machine_spec': Cannot find field."
    )
    assert error.field == "custom_job.job_spec.worker_pool_specs[0].machine_spec"
    assert "Unknown name \"x\" at 'custom_job'" in refused({"x": 1}).message


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"displayName": 5}, "Invalid value at 'custom_job.display_name' (TYPE_STRING), 5"),
        ({"labels": {"a": None}}, "Invalid value at 'custom_job.labels[0].value' (TYPE_STRING), null"),
        (job(pool(replicaCount="x")), 'worker_pool_specs[0].replica_count\' (TYPE_INT64), "x"'),
        (job(spec={"enableWebAccess": "true"}), 'enable_web_access\' (TYPE_BOOL), "true"'),
        (
            job(spec={"scheduling": {"strategy": "CHEAP"}}),
            'google.cloud.aiplatform.v1.Scheduling.Strategy), "CHEAP"',
        ),
        (job(spec={"scheduling": {"strategy": 5}}), "google.cloud.aiplatform.v1.Scheduling.Strategy), 5"),
        ({"jobSpec": "x"}, '(type.googleapis.com/google.cloud.aiplatform.v1.CustomJobSpec), "x"'),
        (
            {"jobSpec": []},
            "Unknown name \"jobSpec\" at 'custom_job': Proto field is not repeating, cannot start list.",
        ),
        (job(spec={"workerPoolSpecs": {}}), "'custom_job.job_spec.worker_pool_specs': it must be a list"),
        (job(spec={"workerPoolSpecs": [None]}), "'custom_job.job_spec.worker_pool_specs[0]'"),
        ({"labels": []}, "'custom_job.labels': it must be an object"),
        ([], "Invalid value at 'custom_job' (type.googleapis.com/google.cloud.aiplatform.v1.CustomJob), []"),
    ],
)
def test_a_wrong_type(document: Any, message: str):
    assert message in refused(document).message


def test_a_field_in_both_spellings():
    error = refused({"displayName": "a", "display_name": "a"})
    assert "set twice, as displayName and as display_name" in error.message


def test_a_pool_runs_a_container_or_a_package():
    error = refused(job(pool() | package()))
    assert "(oneof), oneof field 'task' is already set. Cannot set 'pythonPackageSpec'" in error.message
    assert kept(job(pool(pythonPackageSpec=None)))


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b"[" * 100_000, b'{"displayName": "\\ud800"}', b"nope", b'{"a":1}{']
)
def test_what_is_no_json(body: bytes):
    with pytest.raises(Invalid, match="Invalid JSON payload received"):
        codec.custom_job(body)


def test_no_body_is_an_empty_message():
    assert codec.custom_job(b"").message == CustomJob()


def test_places_are_spelt_as_the_caller_did():
    document = {"display_name": "x", "jobSpec": {"worker_pool_specs": [{"machineSpec": {}}]}}
    at = codec.custom_job(msgspec.json.encode(document)).path / "jobSpec" / "workerPoolSpecs" / 0
    assert (at / "machineSpec").as_sent == "jobSpec.worker_pool_specs[0].machineSpec"
    assert (at / "replicaCount").as_sent == "jobSpec.worker_pool_specs[0].replica_count"
    camel = codec.custom_job(b"{}").path
    assert (camel / "jobSpec" / "workerPoolSpecs").as_sent == "jobSpec.workerPoolSpecs"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["displayName", "display_name", "jobSpec", "workerPoolSpecs", "machineSpec", "scheduling", "timeout",
                 "labels", "strategy", "replicaCount", "containerSpec", "env", "name", "value", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)  # fmt: skip


@given(anything)
def test_no_document_breaks_it(document: object):
    try:
        message = read(document)
    except TurnoutError:
        return
    assert codec.decode(msgspec.json.encode(codec.encode(message)), CustomJob, "x").message == message


@given(st.binary(max_size=30) | st.text(alphabet='{}[]":,\\ud08ae1.+-', max_size=30).map(str.encode))
def test_no_body_breaks_it(body: bytes):
    try:
        codec.custom_job(body)
    except TurnoutError:
        return
