"""Starting over: for which reasons, how often, and how long one waits for it."""

import copy

import pytest
from msgspec.structs import replace

from tests.control.stepping import MASTER, Room, events, gang, kinds, ready, reloaded, started, stopped
from turnout.control.explain import explain
from turnout.control.live_job import SECOND
from turnout.control.retry import next_retry
from turnout.control.turn import EngineReport, Forget, StartGang
from turnout.job import (
    Attempt,
    Cause,
    EventKind,
    Hung,
    Job,
    Mount,
    PastAttempt,
    Policy,
    Reason,
    ReplicaName,
    Retry,
    Sample,
    Sampled,
    Saved,
    State,
)

WORKER = ReplicaName("worker", 0)
ON_LOSS = Retry((Reason.NODE_LOST, Reason.KILLED), 2)
ON_ANYTHING = Retry(tuple(Reason), 1)


def past(*reasons: Reason) -> list[PastAttempt]:
    return [PastAttempt(1, number, 1, 2, reason, "") for number, reason in enumerate(reasons, 1)]


def lose(room: Room, job: Job) -> None:
    room.start(job)
    room.end(job, code=None, cause=Cause.LOST)


def waiting_again() -> tuple[Room, Job]:
    """A job that was lost, and whose place another one took while its results were being saved."""
    room = ready(cpu=4)
    job = room.create(replace(gang(cpu=4, retries=(ON_LOSS,)), mounts=(Mount("obs://bucket/out", "/out"),)))
    room.start(job)
    room.tick(7200)
    room.end(job, code=None, cause=Cause.LOST)
    room.create(gang(cpu=4))
    room.step(EngineReport("local", Saved(job.current, room.now)))
    return room, job


class TestRules:
    def test_each_reason_has_its_own_count(self) -> None:
        policy = Policy((ON_LOSS,))
        assert next_retry(policy, [], Reason.NODE_LOST) == (1, 2)
        assert next_retry(policy, past(Reason.KILLED), Reason.NODE_LOST) == (2, 2)
        assert next_retry(policy, past(Reason.KILLED, Reason.NODE_LOST), Reason.NODE_LOST) is None
        assert next_retry(policy, [], Reason.PROGRAM_FAILED) is None

    def test_rules_add_up_the_first_that_fits_is_charged(self) -> None:
        policy = Policy((ON_LOSS, ON_ANYTHING))
        lost = Reason.NODE_LOST
        assert next_retry(policy, past(lost, lost), Reason.PROGRAM_FAILED) == (1, 1)
        assert next_retry(policy, past(Reason.PROGRAM_FAILED), lost) == (1, 2)
        assert next_retry(policy, past(lost, lost, lost), Reason.PROGRAM_FAILED) is None

    def test_who_was_preempted_always_starts_over_and_it_does_not_count(self) -> None:
        assert next_retry(Policy(), past(*[Reason.PREEMPTED] * 50), Reason.PREEMPTED)
        assert next_retry(Policy((ON_ANYTHING,)), past(Reason.PREEMPTED), Reason.KILLED) == (1, 1)

    def test_unless_the_policy_says_how_often(self) -> None:
        policy = Policy((ON_ANYTHING,), preemptions=2)
        assert next_retry(policy, past(Reason.KILLED, Reason.PREEMPTED), Reason.PREEMPTED) == (2, 2)
        assert next_retry(policy, past(Reason.PREEMPTED, Reason.PREEMPTED), Reason.PREEMPTED) is None
        assert next_retry(policy, past(Reason.PREEMPTED, Reason.PREEMPTED), Reason.KILLED) == (1, 1)

    @pytest.mark.parametrize("reason", [Reason.SUCCEEDED, Reason.STOPPED])
    def test_no_rule_undoes_a_success_or_a_stop(self, reason: Reason) -> None:
        assert next_retry(Policy((ON_ANYTHING,)), [], reason) is None


class TestStartingOver:
    def test_the_attempt_before_is_told_of(self) -> None:
        room = ready()
        job = room.create(gang(workers=1, retries=(ON_LOSS,)))
        room.start(job)
        begun = room.machine.jobs[job.id].lead.started
        room.end(job, WORKER, code=None, signal=9)
        turn = room.end(job, code=None, cause=Cause.STOPPED)
        ended = room.now - SECOND
        assert turn.batch.past == [
            PastAttempt(
                job.id, 1, begun, ended, Reason.KILLED, "worker-0 was killed by SIGKILL", "worker-0", 137
            )
        ]
        assert events(turn, EventKind.RETRIED) == [
            "attempt 1 ended: worker-0 was killed by SIGKILL; attempt 2 follows (retry 1 of 2)"
        ]
        assert kinds(turn) == [Forget, StartGang]

    def test_it_ends_with_the_reason_that_no_rule_is_left_for(self) -> None:
        room = ready()
        job = room.create(gang(retries=(ON_LOSS,)))
        for _ in range(3):
            lose(room, job)
        assert (job.state, job.reason, job.attempt) == (State.FAILED, Reason.NODE_LOST, 3)

    def test_it_goes_before_all_priorities(self) -> None:
        room = ready(cpu=4)
        job = room.create(gang(cpu=2, retries=(ON_LOSS,)))
        room.start(job)
        big = room.create(gang(cpu=3, priority=9))
        assert big.state is State.QUEUED
        turn = room.end(job, code=None, cause=Cause.LOST)
        assert started(turn) == [job.id]
        assert big.state is State.QUEUED

    def test_a_job_that_is_stopped_meanwhile_does_not_start_over(self) -> None:
        room = ready()
        job = room.create(gang(workers=1, retries=(ON_LOSS,)))
        room.start(job)
        room.end(job, WORKER, code=None, signal=9)
        assert job.state is State.STOPPING
        room.stop(job)
        turn = room.end(job, code=None, cause=Cause.STOPPED)
        assert (job.state, job.message, turn.batch.past) == (State.STOPPED, "stopped by alice", [])

    def test_a_failure_that_is_final_stands_when_it_is_stopped_meanwhile(self) -> None:
        room = ready()
        job = room.create(gang(workers=1))
        room.start(job)
        room.end(job, WORKER, code=3)
        assert room.stop(job).instructions == []
        room.end(job, code=None, cause=Cause.STOPPED)
        assert (job.state, job.message) == (State.FAILED, "worker-0 exited with code 3")

    def test_a_job_that_is_deleted_meanwhile_does_not_start_over(self) -> None:
        room = ready()
        job = room.create(gang(workers=1, retries=(ON_LOSS,)))
        room.start(job)
        room.end(job, WORKER, code=None, signal=9)
        room.delete(job)
        room.end(job, code=None, cause=Cause.STOPPED)
        assert (job.state, job.attempt) == (State.STOPPED, 1)

    def test_what_was_used_up_before_a_restart_stays_used_up(self) -> None:
        room = ready()
        job = room.create(gang(retries=(Retry((Reason.NODE_LOST,), 1),)))
        lose(room, job)
        after = reloaded(room, job.current)
        again = after.machine.jobs[job.id].job
        lose(after, again)
        assert (again.state, again.attempt) == (State.FAILED, 2)


class TestWaiting:
    def test_a_first_wait_ends_when_the_policy_says(self) -> None:
        room = ready(cpu=1)
        room.create(gang())
        job = room.create(gang(max_wait=60))
        assert room.turns[-1].wake_at == room.now + 60 * SECOND
        assert job.state is State.QUEUED
        turn = room.tick(60)
        assert (job.state, job.reason) == (State.FAILED, Reason.WAITED)
        assert job.message == "waited 60 seconds in the queue, its maximum waiting time"
        assert turn.wake_at is None

    def test_one_that_gets_its_place_at_the_last_moment_runs(self) -> None:
        room = ready(cpu=1)
        first = room.create(gang())
        job = room.create(gang(max_wait=60))
        room.now += 100 * SECOND
        room.steady += 100 * SECOND
        assert started(room.end(first)) == [job.id]
        assert room.turns[-1].wake_at is None

    def test_a_head_that_gives_up_lets_the_others_go(self) -> None:
        room = ready(cpu=4)
        room.create(gang(cpu=3))
        room.create(gang(cpu=2, max_wait=60))
        small = room.create(gang(cpu=1))
        assert started(room.tick(60)) == [small.id]

    def test_a_retried_job_gives_up_after_half_an_hour(self) -> None:
        room, job = waiting_again()
        assert (job.state, room.turns[-1].wake_at) == (State.QUEUED, room.now + 1800 * SECOND)
        room.tick(1799)
        assert job.state is State.QUEUED
        room.tick(1)
        assert (job.state, job.reason) == (State.FAILED, Reason.WAITED)
        assert job.message == (
            "attempt 1 ended: master-0 was lost; attempt 2 waited 30 minutes in the queue,"
            " its maximum waiting time"
        )

    def test_the_half_hour_goes_on_over_a_restart_and_it_is_still_first(self) -> None:
        room, job = waiting_again()
        room.create(gang(cpu=4, priority=9))
        room.tick(600)
        after = reloaded(room, Attempt(2, 1))
        assert [waiting.job_id for waiting in after.machine.queues["local"]] == [job.id, 3]
        again = after.machine.jobs[job.id].job
        after.tick(1100)
        assert again.state is State.QUEUED
        after.tick(100)
        assert (again.state, again.reason) == (State.FAILED, Reason.WAITED)

    def test_no_job_gives_up_before_the_engine_has_reported_what_it_holds(self) -> None:
        room = Room()
        job = room.create(gang(max_wait=5))
        turn = room.tick(60)
        assert (job.state, turn.wake_at) == (State.QUEUED, None)
        assert started(room.sync()) == [job.id]

    def test_a_very_long_maximum_wait_counts_as_none(self) -> None:
        room = ready(cpu=1)
        room.create(gang())
        job = room.create(gang(max_wait=1e300))
        assert room.turns[-1].wake_at is None
        assert explain(room.machine, room.machine.jobs[job.id]).gives_up_at is None

    def test_an_explanation_says_what_was_and_when_it_gives_up(self) -> None:
        room = ready(cpu=1)
        room.create(gang())
        job = room.create(gang(max_wait=60))
        found = explain(room.machine, room.machine.jobs[job.id])
        assert found.gives_up_at == job.created + 60 * SECOND
        assert "It gives up at 1970-01-01 00:17:" in found.why[-1]


class TestHanging:
    def test_a_gang_that_hangs_is_ended_and_starts_over_if_a_rule_says_so(self) -> None:
        room = ready()
        job = room.create(gang(workers=1, retries=(Retry((Reason.HUNG,), 1),)))
        room.start(job)
        turn = room.step(
            EngineReport("local", Hung(job.current, room.now, "no CPU time and no I/O for 1800 s"))
        )
        assert stopped(turn) == ["master-0", "worker-0"]
        assert events(turn, EventKind.HUNG) == ["it hung: no CPU time and no I/O for 1800 s"]
        room.end(job, WORKER, code=None, cause=Cause.STOPPED)
        turn = room.end(job, code=None, cause=Cause.STOPPED)
        assert [(one.reason, one.replica) for one in turn.batch.past] == [(Reason.HUNG, "")]
        assert started(turn) == [job.id]

    def test_without_a_rule_it_fails(self) -> None:
        room = ready()
        job = room.create(gang())
        room.start(job)
        room.step(EngineReport("local", Hung(job.current, room.now, "")))
        room.end(job, code=None, cause=Cause.STOPPED)
        assert (job.state, job.reason) == (State.FAILED, Reason.HUNG)

    def test_one_that_was_done_before_the_stop_reached_it_has_succeeded(self) -> None:
        room = ready()
        job = room.create(gang())
        room.start(job)
        room.step(EngineReport("local", Hung(job.current, room.now, "")))
        room.end(job, code=0)
        assert (job.state, job.message) == (State.SUCCEEDED, "")

    def test_reports_of_other_attempts_and_repeated_ones_change_nothing(self) -> None:
        room = ready()
        job = room.create(gang(retries=(ON_LOSS,)))
        first = job.current
        lose(room, job)
        room.start(job)
        assert not room.step(EngineReport("local", Hung(first, room.now, ""))).batch
        room.step(EngineReport("local", Hung(job.current, room.now, "")))
        assert not room.step(EngineReport("local", Hung(job.current, room.now, ""))).batch


def test_samples_are_kept_of_the_current_attempt_only() -> None:
    room = ready()
    job = room.create(gang(retries=(ON_LOSS,)))
    first = copy.copy(job.current)
    sample = Sample(MASTER, room.now, cpu=12.5)
    turn = room.step(EngineReport("local", Sampled(first, (sample,))))
    assert turn.batch.samples == [(first, sample)]
    assert turn.batch.jobs == []
    assert turn.changed == set()
    lose(room, job)
    assert not room.step(EngineReport("local", Sampled(first, (sample,)))).batch
