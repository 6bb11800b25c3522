"""One replica starts again in its place while the others go on; and when the whole job does so instead."""

from typing import Any

import pytest

from tests.control.stepping import MASTER, Room, events, gang, kinds, ready, reloaded, stopped
from turnout.control.retry import next_retry
from turnout.control.turn import Forget, RestartReplica, StartGang, StopGang, Turn
from turnout.job import (
    Cause,
    EventKind,
    Job,
    PastAttempt,
    Policy,
    Reason,
    ReplicaName,
    ReplicaState,
    Retry,
    State,
)

WORKER, OTHER = ReplicaName("worker", 0), ReplicaName("worker", 1)
CRASHES = Retry((Reason.KILLED, Reason.PROGRAM_FAILED), 3, codes=(134, 139))
LOSSES = (Reason.KILLED, Reason.NODE_LOST)
AGAIN = Retry(LOSSES, 3, not_codes=(134, 139))
IN_PLACE = Retry(LOSSES, 5, not_codes=(134, 139))


def begun(**policy: Any) -> tuple[Room, Job]:
    """A master and two workers, all running."""
    room = ready()
    job = room.create(gang(workers=2, **{"retries": (CRASHES, AGAIN), "in_place": IN_PLACE} | policy))
    room.start(job)
    return room, job


def again(turn: Turn) -> list[tuple[str, int]]:
    return [(str(one.replica), one.restarts) for one in turn.instructions if isinstance(one, RestartReplica)]


class TestInPlace:
    @pytest.mark.parametrize(
        ("how", "said"),
        [({"signal": 9}, "was killed by SIGKILL"), ({"cause": Cause.LOST}, "was lost")],
    )
    def test_one_that_is_lost_starts_again_and_the_others_go_on(self, how: dict[str, Any], said: str) -> None:
        room, job = begun()
        turn = room.end(job, WORKER, code=None, **how)
        assert again(turn) == [("worker-0", 1)]
        assert kinds(turn) == [RestartReplica]
        told = f"worker-0 {said}; it is restarted in place (retry 1 of 5)"
        assert events(turn, EventKind.RESTARTED) == [told]
        assert (job.state, job.attempt, job.updated) == (State.RUNNING, 1, room.now)
        replica = room.machine.jobs[job.id].replicas[WORKER]
        assert (replica.state, replica.ended, replica.signal) == (ReplicaState.WAITING, None, None)
        assert turn.batch.replicas == [replica]
        room.start(job, WORKER)
        assert replica.state is ReplicaState.RUNNING
        room.end(job)
        for name in (WORKER, OTHER):
            room.end(job, name, code=None, cause=Cause.STOPPED)
        assert (job.state, job.attempt) == (State.SUCCEEDED, 1)

    def test_the_lead_too(self) -> None:
        room, job = begun()
        assert again(room.end(job, code=None, signal=9)) == [("master-0", 1)]
        room.start(job, MASTER)
        assert job.state is State.RUNNING

    def test_each_so_many_times_then_the_whole_job_starts_over(self) -> None:
        room, job = begun()
        for number in range(1, 6):
            for name in (WORKER, OTHER):
                assert again(room.end(job, name, code=None, signal=9)) == [(str(name), number)]
                room.start(job, name)
        assert stopped(room.end(job, WORKER, code=None, signal=9)) == ["master-0", "worker-1"]
        room.end(job, OTHER, code=None, cause=Cause.STOPPED)
        turn = room.end(job, code=None, cause=Cause.STOPPED)
        assert kinds(turn) == [Forget, StartGang]
        assert events(turn, EventKind.RETRIED)[0].endswith("attempt 2 follows (retry 1 of 3)")
        assert [one.restarts for one in room.machine.jobs[job.id].replicas.values()] == [0, 0, 0]

    def test_a_report_of_an_earlier_start_changes_nothing(self) -> None:
        room, job = begun()
        room.end(job, WORKER, code=None, signal=9)
        assert not room.end(job, WORKER, code=None, signal=9, restarts=0).batch
        room.start(job, WORKER)
        assert not room.end(job, WORKER, code=None, signal=9, restarts=0).batch
        assert again(room.end(job, WORKER, code=None, signal=9, restarts=1)) == [("worker-0", 2)]

    @pytest.mark.parametrize(
        ("how", "reason"),
        [
            ({"code": 1}, Reason.PROGRAM_FAILED),
            ({"code": None, "cause": Cause.OUT_OF_MEMORY, "signal": 9}, Reason.OUT_OF_MEMORY),
            ({"code": None, "cause": Cause.TIME_LIMIT, "signal": 15}, Reason.TIME_LIMIT),
        ],
    )
    def test_other_failures_are_final(self, how: dict[str, Any], reason: Reason) -> None:
        room, job = begun()
        assert stopped(room.end(job, WORKER, **how)) == ["master-0", "worker-1"]
        for name in (MASTER, OTHER):
            room.end(job, name, code=None, cause=Cause.STOPPED)
        assert (job.state, job.reason, job.attempt) == (State.FAILED, reason, 1)

    def test_not_without_a_rule(self) -> None:
        room, job = begun(retries=(), in_place=None)
        assert kinds(room.end(job, WORKER, code=None, signal=9)) == [StopGang]


class TestMeanwhile:
    def test_one_that_is_about_to_start_again_is_stopped_with_the_others(self) -> None:
        room, job = begun()
        room.end(job, WORKER, code=None, signal=9)
        assert stopped(room.stop(job)) == ["master-0", "worker-0", "worker-1"]
        room.end(job, WORKER, code=None, cause=Cause.STOPPED)
        for name in (MASTER, OTHER):
            room.end(job, name, code=None, cause=Cause.STOPPED)
        assert job.state is State.STOPPED

    def test_no_replica_restarts_after_the_lead_has_succeeded(self) -> None:
        room, job = begun()
        room.end(job)
        assert again(room.end(job, WORKER, code=None, signal=9)) == []

    def test_the_next_service_says_it_again(self) -> None:
        room, job = begun()
        room.end(job, WORKER, code=None, signal=9)
        after = reloaded(room, job.current)
        assert again(after.turns[-1]) == [("worker-0", 1)]

    def test_what_runs_is_not_started_again(self) -> None:
        room, job = begun()
        room.end(job, WORKER, code=None, signal=9)
        room.start(job, WORKER)
        assert again(reloaded(room, job.current).turns[-1]) == []

    def test_one_that_never_started_again_does_not_keep_a_job_from_ending(self) -> None:
        room, job = begun()
        room.end(job, WORKER, code=None, signal=9)
        room.stop(job)
        after = reloaded(room, job.current)
        assert stopped(after.turns[-1]) == ["master-0", "worker-0", "worker-1"]
        job = after.machine.jobs[job.id].job
        for name in (MASTER, OTHER):
            after.end(job, name, code=None, cause=Cause.STOPPED)
        assert job.state is State.STOPPED

    def test_an_attempt_that_is_gone_as_a_whole_starts_over_as_a_whole(self) -> None:
        room, job = begun()
        after = reloaded(room)
        assert again(after.turns[-1]) == []
        assert after.machine.jobs[job.id].job.attempt == 2


class TestCodes:
    @pytest.mark.parametrize("how", [{"signal": 6}, {"signal": 11}, {"code": 134}, {"code": 139}])
    def test_a_crash_makes_the_whole_job_start_over_three_times(self, how: dict[str, int]) -> None:
        room, job = begun()
        for _ in range(4):
            room.start(job)
            room.end(job, WORKER, **({"code": None} | how))
            for name in (MASTER, OTHER):
                room.end(job, name, code=None, cause=Cause.STOPPED)
        assert (job.state, job.attempt) == (State.FAILED, 4)

    def test_each_rule_has_its_own_count(self) -> None:
        policy = Policy((CRASHES, AGAIN))
        past = [
            PastAttempt(1, n, 1, 2, Reason.KILLED, "", "worker-0", code)
            for n, code in enumerate((134, 137, 134))
        ]
        assert next_retry(policy, past, Reason.KILLED, 139) == (3, 3)
        assert next_retry(policy, past, Reason.KILLED, 137) == (2, 3)
        assert next_retry(policy, past, Reason.NODE_LOST) == (2, 3)
        assert next_retry(policy, past, Reason.PROGRAM_FAILED, 1) is None

    def test_what_crashed_before_a_restart_of_the_service_stays_counted(self) -> None:
        room, job = begun(retries=(Retry((Reason.KILLED,), 1, codes=(134,)),))
        room.end(job, WORKER, code=None, signal=6)
        after = reloaded(room, job.current)
        job = after.machine.jobs[job.id].job
        for name in (MASTER, OTHER):
            after.end(job, name, code=None, cause=Cause.STOPPED)
        assert job.attempt == 2
        after.start(job)
        after.end(job, WORKER, code=None, signal=6)
        for name in (MASTER, OTHER):
            after.end(job, name, code=None, cause=Cause.STOPPED)
        assert (job.state, job.attempt) == (State.FAILED, 2)
