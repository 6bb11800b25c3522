"""Jobs as Vertex shows them."""

from typing import Any

import msgspec
import pytest

from tests.dialects.vertex.jobs import job as document
from turnout.dialects.vertex import render
from turnout.dialects.vertex.resource_names import JobName
from turnout.dialects.vertex.wire import JobState
from turnout.job import Job, Reason, Replica, ReplicaState, State
from turnout.service import JobView

ID = 1234567890123456789
AT = 1_412_262_083 * 10**9


def view(
    state: State, reason: Reason | None = None, message: str = "", *replicas: Replica, **fields: Any
) -> JobView:
    names = ("p1", "vertex", "vertex:us-central1", "", "test", "ap-beijing")
    times: dict[str, Any] = {"started": AT + 1, "ended": AT + 2} if reason else {}
    job = Job(ID, *names, state, 0, AT, AT + 500_000_000, reason=reason, message=message, **(times | fields))
    return JobView(job, replicas, msgspec.json.encode(document(labels={"a": "b"})))


def replica(role: str, index: int, *, ended: int = 1, **fields: Any) -> Replica:
    return Replica(ID, 1, role, index, ReplicaState.FAILED, ended=AT + ended, **fields)


def error(reason: Reason, message: str = "", *replicas: Replica, tail: str = "") -> tuple[int, str]:
    state = State.STOPPED if reason is Reason.STOPPED else State.FAILED
    shown = render.custom_job(view(state, reason, message, *replicas), tail=tail)["error"]
    return shown["code"], shown["message"]


def test_every_state_and_every_reason_is_mapped():
    assert set(render.STATES) == set(State)
    assert set(render.REASONS) == set(Reason)
    assert sorted(render.STATES.values()) == [JobState(number) for number in range(1, 8)]


@pytest.mark.parametrize(
    ("reason", "started", "shown"),
    [
        (Reason.STOPPED, AT, "JOB_STATE_CANCELLING"),
        (Reason.STOPPED, None, "JOB_STATE_CANCELLING"),
        (Reason.PREEMPTED, AT, "JOB_STATE_RUNNING"),
        (Reason.PREEMPTED, None, "JOB_STATE_PENDING"),
        (Reason.PROGRAM_FAILED, AT, "JOB_STATE_RUNNING"),
    ],
)
def test_only_a_cancel_is_shown_as_one(reason: Reason, started: int | None, shown: str):
    """A job that is preempted or retried runs again, which is not possible after JOB_STATE_CANCELLING."""
    assert render.custom_job(view(State.STOPPING, reason, started=started))["state"] == shown


@pytest.mark.parametrize("state", State)
def test_an_error_is_for_those_that_failed_or_were_cancelled(state: State):
    shown = render.custom_job(view(state, Reason.KILLED))
    assert ("error" in shown) == (state in (State.FAILED, State.STOPPED))


def test_a_job_that_waits():
    assert render.custom_job(view(State.QUEUED)) == {
        "name": f"projects/p1/locations/us-central1/customJobs/{ID}",
        "displayName": "test",
        "jobSpec": document()["jobSpec"],
        "state": "JOB_STATE_QUEUED",
        "createTime": "2014-10-02T15:01:23Z",
        "updateTime": "2014-10-02T15:01:23.5Z",
        "labels": {"a": "b"},
    }


def test_a_job_that_runs():
    shown = render.custom_job(
        view(State.RUNNING, started=AT + 45_123_456), web_access_uris={"workerpool0-0": "http://x"}
    )
    assert shown["state"] == "JOB_STATE_RUNNING"
    assert shown["startTime"] == "2014-10-02T15:01:23.045123456Z"
    assert shown["webAccessUris"] == {"workerpool0-0": "http://x"}
    assert "endTime" not in shown
    assert "error" not in shown


def test_a_job_that_succeeded():
    shown = render.custom_job(view(State.SUCCEEDED, Reason.SUCCEEDED), tail="done")
    assert shown["endTime"] == "2014-10-02T15:01:23.000000002Z"
    assert "error" not in shown


def test_a_program_that_failed():
    """The first that failed is to blame."""
    ends = replica("workerpool1", 1, ended=9, exit_code=1), replica("workerpool1", 0, ended=3, exit_code=2)
    code, message = error(Reason.PROGRAM_FAILED, "", *ends, tail="Traceback\nValueError: x\n")
    said, *tail = message.splitlines()
    assert code == 3
    assert said == (
        "The replica workerpool1-0 exited with a non-zero status of 2. Termination reason: Error."
    )
    assert tail == ["Traceback", "ValueError: x"]


def test_a_program_that_crashed():
    code, message = error(Reason.KILLED, "", replica("workerpool0", 0, signal=11))
    assert (code, message) == (
        3,
        "The replica workerpool0-0 exited with a non-zero status of 139. Termination reason: SIGSEGV.",
    )


def test_a_program_that_ran_out_of_memory():
    code, message = error(Reason.OUT_OF_MEMORY, "", replica("workerpool0", 0))
    assert code == 8
    assert message == "The replica workerpool0-0 ran out of memory and exited with a non-zero status of 137."


@pytest.mark.parametrize(
    ("reason", "code", "begins"),
    [
        (Reason.STOPPED, 1, "CANCELED: because"),
        (Reason.TIME_LIMIT, 4, "because."),
        (Reason.WAITED, 8, "Resources are insufficient in region: us-central1. Try a different region"),
        (Reason.NODE_LOST, 13, "Internal error occurred for the current attempt: because."),
        (Reason.STAGING_FAILED, 13, "Internal error occurred for the current attempt: because."),
        (Reason.PROGRAM_NOT_FOUND, 3, "because."),
    ],
)
def test_other_ends(reason: Reason, code: int, begins: str):
    found = error(reason, "because")
    assert found[0] == code
    assert found[1].startswith(begins)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.SUCCEEDED])
def test_every_error_says_something(reason: Reason):
    assert error(reason)[1]
    assert error(reason, "because", replica("workerpool0", 0))[1]


def test_only_the_end_of_a_log_is_shown():
    message = error(
        Reason.PROGRAM_FAILED, "", replica("workerpool0", 0, exit_code=1), tail="x" * 10_000 + "END"
    )[1]
    assert message.endswith("xEND")
    assert len(message) < 4200


def test_names():
    name = JobName("p1", "us-central1", ID)
    assert JobName.parse(str(name)) == name
    assert JobName.parse("projects/p/locations/l/customJobs/x") is None
