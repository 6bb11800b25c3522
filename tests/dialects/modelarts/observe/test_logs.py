"""Requests for logs: whether a log exists, kinds of links, ranges of lines."""

import pytest

from tests.dialects.modelarts.past_jobs import at, completed, job
from turnout.dialects.modelarts.observe import logs, tasks
from turnout.dialects.modelarts.observe.logs import LineRange
from turnout.errors import Invalid
from turnout.job import Program, Reason, ReplicaName, Role, Spec, State
from turnout.service import JobView, Numbered

WORKER = ReplicaName("worker", 0)
DAY = 86_400


def test_a_log_is_there_once_its_task_has_started() -> None:
    waiting = JobView(job(State.QUEUED, attempt=0), (), b"")
    assert not logs.is_ready(waiting, WORKER, at(0), 30)
    assert logs.is_ready(completed().view, WORKER, at(100), 30)
    again = JobView(job(State.PREPARING, attempt=2), (), b"")
    assert logs.is_ready(again, WORKER, at(0), 30)


def test_a_log_that_will_never_be_there() -> None:
    stopped = job(State.STOPPED, Reason.STOPPED, attempt=0)
    stopped.ended = at(1)
    with pytest.raises(Invalid, match="ended before worker-0 started") as caught:
        logs.is_ready(JobView(stopped, (), b""), WORKER, at(2), 30)
    assert caught.value.code == "ModelArts.2818"


def test_a_log_that_was_cleared() -> None:
    assert logs.is_ready(completed().view, WORKER, at(29 * DAY), 30)
    with pytest.raises(Invalid, match="30 days") as caught:
        logs.is_ready(completed().view, WORKER, at(31 * DAY), 30)
    assert caught.value.code == "ModelArts.2819"


@pytest.mark.parametrize(
    ("query", "header", "kind"),
    [
        ("", "", "view"),
        ("", "application/json", "view"),
        ("", "text/plain; charset=utf-8", "view"),
        ("", "application/octet-stream", "download"),
        ("application/octet-stream", "application/json", "download"),
        ("text/plain", "application/octet-stream", "view"),
    ],
)
def test_the_kind_of_link(query: str, header: str, kind: str) -> None:
    assert logs.link_kind({"Content-Type": query}, {"content-type": header}) == kind


def test_lines_are_next_to_the_base() -> None:
    assert logs.parse_line_range({}) == LineRange(None, 50, True)
    assert logs.parse_line_range({"base_line": "10"}) == LineRange(9, 50, True)
    assert logs.parse_line_range({"base_line": "10", "order": "asc"}) == LineRange(11, 50, False)


def test_lines_are_shown_in_the_order_asked_for() -> None:
    found = Numbered(7, [b"a\n", "é\r\n".encode(), b"\xff\n"], 9)
    assert logs.render_lines(found, descending=False) == {
        "start_line": "7",
        "end_line": "9",
        "lines": 3,
        "content": "a\né\n\ufffd\n",
    }
    assert logs.render_lines(found, descending=True)["content"] == "\ufffd\né\na\n"
    assert logs.render_lines(Numbered(1, [], 0), descending=True) == {
        "start_line": "0",
        "end_line": "0",
        "lines": 0,
        "content": "",
    }


def test_tasks_of_several_roles() -> None:
    spec = Spec(roles=(Role("learner", Program(), leads=True), Role("worker", Program(), replicas=11)))
    assert tasks.replica_name(spec, "learner-0") == ReplicaName("learner", 0)
    assert tasks.replica_name(spec, "worker-10") == ReplicaName("worker", 10)
    for wrong in ("worker-11", "worker-01", "learner", "-0", "", "worker--1", "Worker-0"):
        with pytest.raises(Invalid, match="learner-0, worker-0 to worker-10"):
            tasks.replica_name(spec, wrong)
