"""Events from a job's history: their texts, and the filters."""

import pytest

from tests.dialects.modelarts.past_jobs import START, at, completed, event, job, replica, restarted
from tests.dialects.modelarts.past_jobs import document as job_document
from turnout.dialects.modelarts.observe import events
from turnout.dialects.modelarts.observe.history import History
from turnout.dialects.modelarts.observe.messages import language, messages
from turnout.errors import Invalid
from turnout.job import EventKind, Reason, ReplicaState, State
from turnout.service import JobView

NOW = at(100)
TOPIC = {"topic_urn": "urn:smn:r:p1:topic", "events": list(messages().categories)}


def shown(history: History, spoken: str = "en-us", **query: str) -> list[tuple[str, str, str]]:
    """(level, source, message), the oldest first unless the query says otherwise."""
    found = events.render(history, events.parse_query({"order": "asc"} | query), language(spoken), NOW)[
        "events"
    ]
    assert isinstance(found, list)
    return [(one["level"], one["source"], one["message"]) for one in found]


def texts(history: History, **query: str) -> list[str]:
    return [message for _, _, message in shown(history, **query)]


def test_a_job_that_completed() -> None:
    assert shown(completed()) == [
        ("Info", "Job", "Training job created."),
        ("Info", "Job", "pytorch asks for PyTorch 1.8; here it runs on Python 3.11."),
        ("Info", "Job", "Training job is queuing for resources."),
        ("Info", "K8S", "Resources allocated: 2 tasks, attempt 1."),
        ("Info", "Job", "Training job is running."),
        ("Info", "Task", "[worker-0] Training started."),
        ("Info", "Task", "[worker-1] Training started."),
        ("Info", "Task", "[worker-0][Time used: 60.000s] Training finished. Exit code 0."),
        ("Info", "Task", "[worker-1][Time used: 60.000s] Training finished. Exit code 0."),
        ("Info", "Task", "Training outputs uploaded: 2 files, 3.1 MB."),
        ("Info", "Job", "Training job completed."),
    ]


def test_in_chinese() -> None:
    told = shown(completed(), "zh-cn")
    assert told[0] == ("Info", "Job", "训练作业已创建。")
    assert told[-1] == ("Info", "Job", "训练作业运行成功。")
    assert len(told) == len(shown(completed()))


def test_every_message_can_be_told_in_both_languages() -> None:
    words = {
        "detail": "d",
        "task": "t",
        "seconds": "1",
        "code": "0",
        "hours": "1",
        "event": "e",
        "topic": "t",
    }
    for kind in messages().events.values():
        assert kind.text("en", **words).isascii()
        assert not kind.text("zh", **words).isascii()


def test_a_restart_is_told_with_what_led_to_it() -> None:
    told = shown(restarted(Reason.KILLED, (EventKind.RETRIED,)))
    assert told[-3:] == [
        (
            "Error",
            "Task",
            "[worker-0][Time used: 9.000s] Training finished. Exit code 137. It was killed by SIGKILL.",
        ),
        ("Warning", "Job", "Training job is restarted: killed by a signal."),
        ("Info", "Job", "Training job is queuing for resources."),
    ]


def test_a_hang_is_told_before_the_restart() -> None:
    told = texts(restarted(Reason.HUNG, (EventKind.HUNG, EventKind.RETRIED)))
    assert told[-3:] == [
        "Training job may be suspended: hung.",
        "Training job is restarted: hung.",
        "Training job is queuing for resources.",
    ]


def test_a_preemption_is_not_told_twice() -> None:
    told = texts(restarted(Reason.PREEMPTED, (EventKind.PREEMPTED, EventKind.STOPPING, EventKind.RETRIED)))
    assert told[-2:] == [
        "Training job was preempted and goes back to the queue: preempted.",
        "Training job is queuing for resources.",
    ]


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        (
            State.FAILED,
            Reason.TIME_LIMIT,
            ("Info", "Training job was stopped automatically. (Maximum running duration: 2 hours)"),
        ),
        (State.FAILED, Reason.OUT_OF_MEMORY, ("Error", "Training job failed: told by control.")),
        (State.STOPPED, Reason.STOPPED, ("Info", "Training job was stopped manually: told by control.")),
    ],
)
def test_ends(state: State, reason: Reason, said: tuple[str, str]) -> None:
    ended = job(state, reason)
    ended.ended = at(9)
    happened = [
        event(0, EventKind.CREATED),
        event(0, EventKind.PLACED),
        event(9, EventKind.ENDED, "told by control"),
    ]
    stored = job_document(auto_stop={"time_unit": "HOURS", "duration": 2})
    level, _, message = shown(History(JobView(ended, (), stored), happened, [], [()]))[-1]
    assert (level, message) == said


def test_a_job_that_waited_too_long_for_another_go() -> None:
    history = restarted(Reason.HUNG, (EventKind.HUNG, EventKind.RETRIED))
    ended = history.view.job
    ended.state, ended.reason, ended.ended = State.FAILED, Reason.WAITED, at(2000)
    history = history._replace(events=[*history.events, event(2000, EventKind.ENDED, "waited 30 minutes")])
    assert texts(history)[-2:] == [
        "Training job is queuing for resources.",
        "Training job failed: waited 30 minutes.",
    ]


def test_a_task_that_never_ran_and_one_that_was_stopped() -> None:
    ended = job(State.FAILED, Reason.STAGING_FAILED)
    ended.ended = at(3)
    replicas = (
        replica(0, None, 3, state=ReplicaState.FAILED, message="could not get its files: no bucket b"),
        replica(1, 2, 3, state=ReplicaState.STOPPED, message="was stopped"),
        replica(2, 2, 3, state=ReplicaState.FAILED, message="was lost"),
    )
    told = shown(
        History(JobView(ended, replicas, job_document()), [event(0, EventKind.CREATED)], [], [replicas])
    )
    assert {
        message: level for level, _, message in told if "worker" in message and "started." not in message[-9:]
    } == {
        "[worker-0] Training could not be started. It could not get its files: no bucket b.": "Error",
        "[worker-1][Time used: 1.000s] Training was stopped.": "Warning",
        "[worker-2][Time used: 1.000s] Training ended without an exit code. It was lost.": "Error",
    }


def test_requested_notifications_are_recorded() -> None:
    told = [message.split(" for ")[0] for message in texts(completed(notification=TOPIC), pattern="urn:smn")]
    assert told == ["Notification JobStarted", "Notification JobCompleted"]
    only = TOPIC | {"events": ["JobRestarted"]}
    history = restarted(Reason.KILLED, (EventKind.RETRIED,), notification=only)
    assert [message.split(" for ")[0] for message in texts(history, pattern="Notification")] == [
        "Notification JobRestarted"
    ]
    assert texts(completed(), pattern="Notification") == []


def test_the_page_is_numbers_and_chinese_time() -> None:
    page = events.render(completed(), events.parse_query({}), "en", NOW)
    assert {key: page[key] for key in ("total", "limit", "offset", "order", "start_time", "end_time")} == {
        "total": 11,
        "limit": 50,
        "offset": 0,
        "order": "desc",
        "start_time": "2022-11-26T16:01:36+08:00",
        "end_time": "2022-11-26T16:03:16+08:00",
    }
    found = page["events"]
    assert isinstance(found, list)
    assert found[0] == {
        "time": "2022-11-26T16:02:43+08:00",
        "level": "Info",
        "message": "Training job completed.",
        "source": "Job",
    }


def test_pages_hold_everything_once() -> None:
    pages = [texts(completed(), limit="4", offset=str(page)) for page in range(4)]
    assert [len(page) for page in pages] == [4, 4, 3, 0]
    assert [text for page in pages for text in page] == texts(completed())


def test_filters() -> None:
    failed = restarted(Reason.KILLED, (EventKind.RETRIED,))
    assert [level for level, _, _ in shown(failed, level="Error")] == ["Error"]
    assert {source for _, source, _ in shown(failed, source="K8s")} == {"K8S"}
    assert texts(completed(), pattern="worker-1") == [
        text for text in texts(completed()) if "worker-1" in text
    ]
    milliseconds = START // 1_000_000
    window = {"start_time": str(milliseconds + 4000), "end_time": str(milliseconds + 10_000)}
    assert texts(completed(), **window) == texts(completed())[4:7]
    assert texts(
        completed(), start_time="2022-11-26T16:01:40+08:00", end_time="2022-11-26T08:01:46Z"
    ) == texts(completed(), **window)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"offset": "-1"}, "offset"),
        ({"offset": "9" * 40}, "offset"),
        ({"order": "up"}, "order"),
        ({"level": "Fatal"}, "level"),
        ({"source": "Pod"}, "source"),
        ({"pattern": "x" * 257}, "pattern"),
        ({"start_time": "1669449696964"}, "end_time"),
        ({"end_time": "1669449696964"}, "start_time"),
        ({"start_time": "2", "end_time": "1"}, "start_time"),
        ({"start_time": "soon", "end_time": "1"}, "start_time"),
        ({"start_time": "1", "end_time": "9" * 30}, "end_time"),
        ({"start_time": "0001-01-01T00:00:00+14:00", "end_time": "1"}, "start_time"),
    ],
)
def test_a_bad_request_names_the_field(query: dict[str, str], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        events.parse_query(query)
    assert (caught.value.code, caught.value.field) == ("ModelArts.50004000", field)


def test_a_job_that_starts_at_once_never_queued() -> None:
    happened = [event(0, EventKind.CREATED), event(0, EventKind.PLACED)]
    told = texts(History(JobView(job(State.PREPARING), (), job_document()), happened, [], [()]))
    assert "Training job is queuing for resources." not in told
