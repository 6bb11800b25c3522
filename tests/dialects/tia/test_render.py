"""Jobs as TI-A shows them."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.access import tencent_account as account
from turnout.dialects.tia import render, wire
from turnout.job import Job, Reason, Replica, ReplicaName, ReplicaState, State, from_uuid
from turnout.service import JobView, Line

DOCUMENT = b'{"Name":"test-job","Cluster":"ap-beijing","RuntimeVersion":"tia-1.7.0","ScaleTier":"Custom"}'
REQUEST = msgspec.json.decode(DOCUMENT, type=wire.CreateJob)
AT = 1527040800 * 10**9
ID = 1234567890123456789


def job(state: State = State.RUNNING, reason: Reason | None = None, message: str = "", **fields: Any) -> Job:
    names = ("default", "tia", "tia:ap-beijing", "test-job", "test-job", "ap-beijing")
    return Job(ID, *names, state, 0, AT, AT, reason=reason, message=message, **fields)


def gang(**states: list[ReplicaState]) -> tuple[Replica, ...]:
    return tuple(
        Replica(ID, 1, role, index, state)
        for role, each in states.items()
        for index, state in enumerate(each)
    )


FAILED, RUNNING, STOPPED = ReplicaState.FAILED, ReplicaState.RUNNING, ReplicaState.STOPPED
WAITING, SUCCEEDED = ReplicaState.WAITING, ReplicaState.SUCCEEDED


def test_every_state_has_a_name():
    assert set(render.STATES) == set(State)
    assert set(render.REPLICA_STATES) == set(ReplicaState)
    assert set(render.STATES.values()) == {"Created", "Running", "Succeeded", "Failed"}


def test_the_reply_to_create_job():
    shown = render.created_job(job(State.QUEUED), REQUEST, 66666.666666666)
    assert shown.create_time == "2018-05-23 10:00:00.000000000 +0800 CST m=+66666.666666666"
    assert (shown.message, shown.state, shown.app_id, shown.id) == ("creating", None, None, None)
    assert (shown.name, shown.scale_tier, shown.worker_count) == ("test-job", "Custom", None)


def test_a_job_that_runs():
    view = JobView(job(started=AT + 1_500_000_000), gang(master=[RUNNING]), DOCUMENT)
    shown = render.described_job(view)
    assert shown.state == "Running"
    assert shown.create_time == "2018-05-23 10:00:00 +0800 CST"
    assert shown.start_time == "2018-05-23 10:00:01.5 +0800 CST"
    assert shown.end_time is None
    assert from_uuid(shown.id or "") == ID
    assert shown.app_id == account.app_id("default")
    assert (shown.uin or "").isdecimal()


@pytest.mark.parametrize(
    ("subject", "replicas", "expected"),
    [
        (job(State.SUCCEEDED, Reason.SUCCEEDED), gang(master=[SUCCEEDED], ps=[STOPPED]), ""),
        (
            job(State.FAILED, Reason.PROGRAM_FAILED, "master-0 exited with code 1"),
            gang(master=[FAILED]),
            "[MASTER/Failed : Failed/1]",
        ),
        (
            job(State.STOPPING, Reason.PROGRAM_FAILED, "master-0 exited with code 1"),
            gang(worker=[RUNNING], master=[FAILED]),
            "[MASTER/Failed : Failed/1] ;[WORKER/Running : Running/1]",
        ),
        (
            job(),
            gang(ps=[RUNNING], worker=[RUNNING, FAILED, RUNNING], master=[RUNNING]),
            "[MASTER/Running : Running/1] ;[WORKER/Failed : Failed/1, Running/2] ;[PS/Running : Running/1]",
        ),
        (
            job(State.FAILED, Reason.OUT_OF_MEMORY, "worker-0 ran out of memory"),
            gang(master=[STOPPED], worker=[FAILED]),
            "[MASTER/Stopped : Stopped/1] ;[WORKER/Failed : Failed/1] ;worker-0 ran out of memory",
        ),
        (job(State.STOPPED, Reason.STOPPED, "stopped by AKIDX"), (), "stopped by AKIDX"),
        (job(State.QUEUED), (), ""),
        (job(State.PREPARING), gang(master=[WAITING]), "[MASTER/Created : Created/1]"),
    ],
)
def test_messages(subject: Job, replicas: tuple[Replica, ...], expected: str):
    assert render.message(subject, replicas) == expected


@given(st.integers(0, 4 * 10**18))
def test_times_have_the_layout_of_go(at: int):
    shown = render.go_time(at)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{0,8}[1-9])? \+0800 CST", shown)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,8}[1-9])?Z", render.rfc3339(at))


def test_log_lines():
    text = "Done training!"
    at = 1530522604916553368
    view = JobView(job(), gang(master=[RUNNING]), DOCUMENT)
    (line,) = render.logs(view, [Line(at, 1, ReplicaName("master", 0), 0, 0, text)])
    assert (line.container_name, line.log) == ("tensorflow", text)
    assert line.time == "2018-07-02T09:10:04.916553368Z"
    assert line.namespace == str(account.app_id("default"))
    assert re.fullmatch(r"test-job-master-[a-z0-9]{4}-0-[a-z0-9]{5}", line.pod_name)
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", line.pod_id)


def test_pods_keep_their_ids():
    first, second = ReplicaName("worker", 0), ReplicaName("worker", 1)
    assert render.pod_id(job(), first) == render.pod_id(job(), first)
    assert render.pod_id(job(), first) != render.pod_id(job(), second)


def test_accounts_look_like_tencents():
    assert 1_250_000_000 <= account.app_id("default") < 1_300_000_000
    assert account.app_id("default") != account.app_id("other")
    assert re.fullmatch(r"100\d{9}", account.uin("default"))
