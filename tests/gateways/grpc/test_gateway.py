"""The real client over gRPC: what the REST side is asked, and what the client makes of its answers."""

import threading
import time
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import aiplatform_v1, aiplatform_v1beta1
from google.cloud.aiplatform_v1beta1.services.job_service.transports import JobServiceGrpcTransport as Beta
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import duration_pb2, field_mask_pb2

from tests.gateways.grpc.stub import Stub

PLACE = "projects/p1/locations/us-central1"
JOB = f"{PLACE}/customJobs/5942175266485829632"
ANSWER = {
    "name": JOB,
    "displayName": "first",
    "state": "JOB_STATE_RUNNING",
    "createTime": "2026-11-16T03:04:05.678901234Z",
    "jobSpec": {
        "workerPoolSpecs": [
            {
                "replicaCount": "2",
                "machineSpec": {"machineType": "n1-standard-4", "acceleratorType": "NVIDIA_TESLA_K80"},
            }
        ],
        "scheduling": {"timeout": "3600.500s"},
    },
}


def test_a_created_job_comes_back_as_the_service_made_it(client: Any, rest: Stub):
    rest.say(ANSWER)
    pool = {
        "machine_spec": {"machine_type": "n1-standard-4", "accelerator_type": 1, "accelerator_count": 1},
        "replica_count": 2,
        "container_spec": {"image_uri": "gcr.io/p/i", "args": ["--x"]},
    }
    job = {"display_name": "first", "job_spec": {"worker_pool_specs": [pool]}, "labels": {"team_a": "x"}}
    made = client.create_custom_job(parent=PLACE, custom_job=job)
    assert rest.last[:2] == ("POST", f"/v1/{PLACE}/customJobs")
    assert rest.last.body == {
        "displayName": "first",
        "labels": {"team_a": "x"},
        "jobSpec": {
            "workerPoolSpecs": [
                {
                    "machineSpec": {
                        "machineType": "n1-standard-4",
                        "acceleratorType": "NVIDIA_TESLA_K80",
                        "acceleratorCount": 1,
                    },
                    "replicaCount": "2",
                    "containerSpec": {"imageUri": "gcr.io/p/i", "args": ["--x"]},
                }
            ]
        },
    }
    assert made.name == JOB
    assert made.state == aiplatform_v1.JobState.JOB_STATE_RUNNING
    assert made.create_time.nanosecond == 678901234
    assert made.job_spec.worker_pool_specs[0].replica_count == 2
    assert made.job_spec.scheduling.timeout.microseconds == 500_000


def test_the_other_methods_of_jobs(client: Any, rest: Stub):
    rest.say(ANSWER)
    assert client.get_custom_job(name=JOB).display_name == "first"
    assert rest.last[:3] == ("GET", f"/v1/{JOB}", None)

    rest.say({})
    client.cancel_custom_job(name=JOB)
    assert rest.last[:3] == ("POST", f"/v1/{JOB}:cancel", {})

    rest.say(b"")
    client.cancel_custom_job(name=JOB)

    rest.say(
        {
            "name": f"{PLACE}/operations/7",
            "done": True,
            "metadata": {"@type": "type.googleapis.com/google.cloud.aiplatform.v1.DeleteOperationMetadata"},
            "response": {"@type": "type.googleapis.com/google.protobuf.Empty"},
        }
    )
    assert client.delete_custom_job(name=JOB).result(10) is not None
    assert rest.last[:2] == ("DELETE", f"/v1/{JOB}")


def test_a_list_asks_for_every_page(client: Any, rest: Stub):
    rest.say({"customJobs": [ANSWER], "nextPageToken": "more/+="})
    request = aiplatform_v1.ListCustomJobsRequest(
        parent=PLACE,
        filter='display_name="a b" AND labels.x:*',
        page_size=1,
        read_mask=field_mask_pb2.FieldMask(paths=["display_name", "job_spec.scheduling"]),
    )
    pages = iter(client.list_custom_jobs(request).pages)
    assert [job.name for job in next(pages).custom_jobs] == [JOB]
    assert rest.last.target == (
        f"/v1/{PLACE}/customJobs?filter=display_name%3D%22a+b%22+AND+labels.x%3A%2A&pageSize=1"
        "&readMask=displayName%2CjobSpec.scheduling"
    )
    rest.say({})
    assert list(next(pages).custom_jobs) == []
    assert "pageToken=more%2F%2B%3D" in rest.last.target


def test_hyperparameter_tuning_jobs_are_handed_on(client: Any, rest: Stub):
    rest.say({"name": f"{PLACE}/hyperparameterTuningJobs/1", "maxTrialCount": 3})
    made = client.create_hyperparameter_tuning_job(
        parent=PLACE, hyperparameter_tuning_job={"display_name": "tune", "max_trial_count": 3}
    )
    assert made.max_trial_count == 3
    assert rest.last[:3] == (
        "POST",
        f"/v1/{PLACE}/hyperparameterTuningJobs",
        {"displayName": "tune", "maxTrialCount": 3},
    )


def test_the_preview_version_is_its_own(channel: grpc.Channel, rest: Stub):
    client = aiplatform_v1beta1.JobServiceClient(transport=Beta(channel=channel))
    rest.say(ANSWER)
    assert client.get_custom_job(name=JOB).display_name == "first"
    assert rest.last.target == f"/v1beta1/{JOB}"


def test_operations_and_locations(client: Any, rest: Stub):
    name = f"{JOB}/operations/7"
    rest.say({"name": name, "done": True})
    assert client.get_operation(operations_pb2.GetOperationRequest(name=name)).done
    assert rest.last.target == f"/v1/{name}"
    wait = operations_pb2.WaitOperationRequest(name=name, timeout=duration_pb2.Duration(seconds=5))
    waited = operations_pb2.Operation.FromString(client.wait_operation(wait))  # which it leaves to us
    assert waited.done
    assert rest.last[:2] == ("POST", f"/v1/{name}:wait?timeout=5s")
    client.cancel_operation(operations_pb2.CancelOperationRequest(name=name))
    assert rest.last.target == f"/v1/{name}:cancel"
    client.delete_operation(operations_pb2.DeleteOperationRequest(name=name))
    assert rest.last[:2] == ("DELETE", f"/v1/{name}")

    rest.say({"operations": [{"name": name}]})
    listed = client.list_operations(operations_pb2.ListOperationsRequest(name=PLACE))
    assert [one.name for one in listed.operations] == [name]
    assert rest.last.target == f"/v1/{PLACE}/operations"

    rest.say({"name": PLACE, "locationId": "us-central1"})
    assert client.get_location(locations_pb2.GetLocationRequest(name=PLACE)).location_id == "us-central1"
    rest.say({"locations": [{"name": PLACE}]})
    assert len(client.list_locations(locations_pb2.ListLocationsRequest(name="projects/p1")).locations) == 1
    assert rest.last.target == "/v1/projects/p1/locations"


def test_only_the_token_and_the_peer_are_handed_on(client: Any, rest: Stub):
    client.get_custom_job(name=JOB, metadata=[("authorization", "Bearer t0ken"), ("x-other", "1")])
    assert rest.last.headers["authorization"] == "Bearer t0ken"
    assert set(rest.last.headers) == {"host", "content-type", "authorization", "x-turnout-peer"}
    client.get_custom_job(name=JOB)
    assert "authorization" not in rest.last.headers


@pytest.mark.parametrize(
    ("sent", "handed_on"),
    [
        ([("authorization", "  Bearer t0ken ")], "Bearer t0ken"),
        ([("authorization", "")], ""),
        ([("authorization-bin", b"\xff\x00"), ("x-bin", bytes(1000))], None),
        ([("authorization", "Bearer " + "x" * 6000)], "Bearer " + "x" * 6000),
        ([("host", "evil"), ("content-length", "7"), ("transfer-encoding", "chunked")], None),
    ],
)
def test_odd_metadata_does_no_harm(client: Any, rest: Stub, sent: Any, handed_on: str | None):
    client.get_custom_job(name=JOB, metadata=sent)
    assert rest.last.headers.get("authorization") == handed_on
    assert "transfer-encoding" not in rest.last.headers
    assert rest.last.headers["host"].startswith("127.0.0.1")


def test_a_filter_that_no_address_can_hold(client: Any, rest: Stub):
    with pytest.raises(exceptions.InvalidArgument, match="filter is too long"):
        client.list_custom_jobs({"parent": PLACE, "filter": "x" * 70_000})
    assert rest.asked == []


@pytest.mark.parametrize(
    ("http", "code", "kind"),
    [
        (400, "INVALID_ARGUMENT", exceptions.InvalidArgument),
        (400, "FAILED_PRECONDITION", exceptions.FailedPrecondition),
        (400, "OUT_OF_RANGE", exceptions.OutOfRange),
        (401, "UNAUTHENTICATED", exceptions.Unauthenticated),
        (403, "PERMISSION_DENIED", exceptions.PermissionDenied),
        (404, "NOT_FOUND", exceptions.NotFound),
        (409, "ALREADY_EXISTS", exceptions.AlreadyExists),
        (409, "ABORTED", exceptions.Aborted),
        (429, "RESOURCE_EXHAUSTED", exceptions.ResourceExhausted),
        (499, "CANCELLED", exceptions.Cancelled),
        (500, "INTERNAL", exceptions.InternalServerError),
        (501, "UNIMPLEMENTED", exceptions.MethodNotImplemented),
        (503, "UNAVAILABLE", exceptions.ServiceUnavailable),
        (504, "DEADLINE_EXCEEDED", exceptions.DeadlineExceeded),
    ],
)
def test_errors_have_their_own_classes(client: Any, rest: Stub, http: int, code: str, kind: Any):
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "BECAUSE",
        "domain": "aiplatform.googleapis.com",
    }
    rest.fail(
        http, code, f"displayName: größer als erlaubt ({code})", details=[info, {"@type": "no/such.Type"}]
    )
    with pytest.raises(kind) as caught:
        client.create_custom_job(parent=PLACE, custom_job={})
    assert caught.type is kind
    error: Any = caught.value
    assert error.message == f"displayName: größer als erlaubt ({code})"
    assert (error.reason, error.domain) == ("BECAUSE", "aiplatform.googleapis.com")


def test_an_endless_message_is_cut_so_that_it_arrives(client: Any, rest: Stub):
    rest.fail(400, "INVALID_ARGUMENT", "名" * 50_000)
    with pytest.raises(exceptions.InvalidArgument) as caught:
        client.get_custom_job(name=JOB)
    assert caught.value.message.startswith("名名名")
    assert caught.value.message.endswith(" …")


@pytest.mark.parametrize(
    ("http", "body", "kind", "text"),
    [
        (403, b"without auth only the user who runs the service may use it\n", "PermissionDenied", "without"),
        (404, b'{"detail": "Not Found"}', "NotFound", "Not Found"),
        (500, b"\xff", "InternalServerError", "�"),
        (502, b"", "ServiceUnavailable", "502"),
        (418, b"{}", "Unknown", "{}"),
        (200, b"[1]", "InternalServerError", "the response is not a valid CustomJob"),
        (
            200,
            b'{"createTime": "2026-11-16 03:04:05"}',
            "InternalServerError",
            "the response is not a valid CustomJob",
        ),
    ],
)
def test_an_answer_that_is_none(client: Any, rest: Stub, http: int, body: bytes, kind: str, text: str):
    rest.say(body, http)
    with pytest.raises(getattr(exceptions, kind), match=text):
        client.get_custom_job(name=JOB)


@pytest.mark.parametrize("name", ["", "x", f"{PLACE}/customJobs", f"{PLACE}/customJobs/1/2", f"/{JOB}"])
def test_a_name_that_is_none_is_refused(client: Any, rest: Stub, name: str):
    with pytest.raises(exceptions.InvalidArgument, match=r"name: .* must look like projects/") as caught:
        client.get_custom_job(name=name)
    assert caught.value.reason == "INVALID_ARGUMENT"
    assert rest.asked == []


def test_a_name_cannot_lead_to_another_call(client: Any, rest: Stub):
    client.cancel_custom_job(name=f"{PLACE}/customJobs/1?x=ä#y z:%2e")
    assert rest.last.target == f"/v1/{PLACE}/customJobs/1%3Fx%3D%C3%A4%23y%20z%3A%252e:cancel"


def test_what_is_no_message_is_the_callers_mistake(channel: grpc.Channel, rest: Stub):
    call = channel.unary_unary("/google.cloud.aiplatform.v1.JobService/CreateCustomJob")
    for nonsense in (b"\xff\xff\xff", b"\x0a\x02\xff\xfe"):
        with pytest.raises(grpc.RpcError) as caught:
            call(nonsense)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert rest.asked == []


def test_a_value_that_json_has_no_words_for(client: Any, rest: Stub):
    endless = {"scheduling": aiplatform_v1.Scheduling(timeout=duration_pb2.Duration(seconds=1 << 60))}
    with pytest.raises(exceptions.InvalidArgument, match="Duration"):
        client.create_custom_job(parent=PLACE, custom_job={"job_spec": endless})
    assert rest.asked == []


@pytest.mark.parametrize(
    "method",
    ["/google.cloud.aiplatform.v1.JobService/CreateNasJob", "/google.cloud.aiplatform.v1.Nope/X", "/x"],
)
def test_other_methods_do_not_exist(channel: grpc.Channel, method: str):
    with pytest.raises(grpc.RpcError, match="is not supported; use a CustomJob") as caught:
        channel.unary_unary(method)(b"")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_deadline_is_kept_and_the_next_call_is_not_hurt(client: Any, rest: Stub):
    rest.gate.clear()
    began = time.monotonic()
    with pytest.raises(exceptions.DeadlineExceeded):
        client.get_custom_job(name=JOB, timeout=0.3)
    assert time.monotonic() - began < 5
    rest.gate.set()
    rest.say(ANSWER)
    assert client.get_custom_job(name=JOB, timeout=10).name == JOB


def test_many_calls_at_once_share_a_few_connections(client: Any, rest: Stub):
    rest.say(ANSWER)
    before = rest.connections
    results: list[str] = []

    def ask() -> None:
        results.extend(client.get_custom_job(name=JOB).name for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [JOB] * 160
    assert rest.connections - before < 40


def test_a_page_may_be_large(client: Any, rest: Stub):
    rest.say({"customJobs": [ANSWER | {"labels": {"x": "y" * 9000}}] * 1000})
    assert len(client.list_custom_jobs(parent=PLACE).custom_jobs) == 1000
