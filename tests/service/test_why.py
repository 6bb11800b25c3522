"""Explanations of why a job ended, without repetition."""

from turnout.job import Job, Reason, Replica, ReplicaState, State
from turnout.service.ends import why_ended
from turnout.service.jobs import JobView


def why(state, reason, message, *ends, started: int | None = 1):
    job = Job(
        7, "default", "tia", "", "j", "j", "ap-beijing", state, 0, 0, 0, attempt=1, started=started, ended=2
    )
    job.reason, job.message = reason, message
    replicas = tuple(
        Replica(
            7, 1, "master" if number == 0 else "worker", max(0, number - 1), ReplicaState.FAILED, message=end
        )
        for number, end in enumerate(ends)
    )
    return why_ended(JobView(job, replicas, b""))


def test_a_replica_in_the_job_message_is_not_repeated():
    told = why(
        State.FAILED,
        Reason.PROGRAM_FAILED,
        "master-0 exited with code 3",
        "exited with code 3",
        "was stopped",
    )
    assert told == ["It failed: program failed.", "master-0 exited with code 3.", "worker-0 was stopped."]


def test_a_message_with_the_reason_replaces_it():
    told = why(
        State.FAILED,
        Reason.OUT_OF_MEMORY,
        "master-0 ran out of memory: too much",
        "ran out of memory: too much",
    )
    assert told == ["It failed: master-0 ran out of memory: too much."]
    assert why(State.STOPPED, Reason.STOPPED, "stopped by me", "was stopped") == [
        "It was stopped by me.",
        "master-0 was stopped.",
    ]


def test_a_job_that_never_ran_says_so_and_a_message_of_many_lines_is_one():
    message = "master-0 could not get its files: mount failed\n  see dmesg.\n"
    told = why(State.FAILED, Reason.STAGING_FAILED, message, message.removeprefix("master-0 "), started=None)
    assert told == [
        "It failed: staging failed.",
        "master-0 could not get its files: mount failed see dmesg.",
        "It never ran.",
    ]
