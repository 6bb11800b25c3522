"""The stages of each attempt."""

from typing import Any

from tests.dialects.modelarts.past_jobs import completed, document, event, job, restarted
from turnout.dialects.modelarts.observe import stages
from turnout.dialects.modelarts.observe.history import History
from turnout.job import EventKind, Reason, State, to_uuid
from turnout.service import JobView


def records(history: History) -> list[Any]:
    answer: dict[str, Any] = stages.render(history)
    assert answer["total_count"] == len(answer["running_records"])
    return answer["running_records"]


def test_a_job_that_completed_went_through_all_four() -> None:
    (record,) = records(completed())
    assert record["record_order"] == 1
    assert [(one["stage_order"], one["name"]) for one in record["stages"]] == [
        (1, "scheduling"),
        (2, "preparing"),
        (3, "running"),
        (4, "end"),
    ]
    assert [(one["start_time"][11:19], one["end_time"][11:19]) for one in record["stages"]] == [
        ("16:01:36", "16:01:38"),
        ("16:01:38", "16:01:40"),
        ("16:01:40", "16:02:43"),
        ("16:02:43", "16:02:43"),
    ]
    assert {one["job_id"] for one in record["stages"]} == {to_uuid(job().id)}


def test_both_languages_and_the_tasks_of_a_stage() -> None:
    running, end = records(completed())[0]["stages"][2:]
    assert (running["en_message"], running["zh_message"]) == ("The run has ended.", "运行已结束。")
    assert running["sub_stages"][1] == {
        "name": "worker-1",
        "en_message": "[worker-1] Training started.",
        "zh_message": "[worker-1] 训练开始。",
        "create_time": "2022-11-26T16:01:40+08:00",
    }
    assert end["en_message"] == "The job has ended: succeeded."
    assert [part["name"] for part in end["sub_stages"]] == ["worker-0", "worker-1"]


def test_a_restarted_job_has_a_record_for_each_attempt() -> None:
    first, second = records(restarted(Reason.KILLED, (EventKind.RETRIED,)))
    assert [one["name"] for one in first["stages"]] == ["scheduling", "preparing", "running", "end"]
    assert first["stages"][-1]["en_message"] == "The job has ended: worker-0: killed by a signal."
    (waiting,) = second["stages"]
    assert (waiting["name"], waiting["end_time"]) == ("scheduling", "")
    assert waiting["en_message"] == "The job is waiting for resources."
    assert second["record_order"] == 2


def test_a_job_that_was_stopped_while_it_waited_never_ran() -> None:
    ended = job(State.STOPPED, Reason.STOPPED, attempt=0)
    ended.ended = ended.created
    (record,) = records(History(JobView(ended, (), document()), [event(0, EventKind.CREATED)], [], []))
    assert [one["name"] for one in record["stages"]] == ["scheduling", "end"]
