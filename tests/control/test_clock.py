"""The machine's clock is set back or forward: stored times keep their order, and nothing is due early or late."""

import copy

import pytest

from tests.control.stepping import SECOND, Room, gang, ready, reloaded, stopped
from turnout.control.explain import explain
from turnout.control.state_machine import StateMachine
from turnout.engines import Traits
from turnout.job import Cause, Event, Job, Reason, ReplicaName, Retry, State
from turnout.store import LiveRecord

HOUR = 3600 * SECOND
BACK, FORWARD = -HOUR, HOUR


def events(room: Room, job: Job) -> list[Event]:
    return [event for turn in room.turns for event in turn.batch.events if event.job == job.id]


def check(room: Room, job: Job) -> None:
    """All that is known of a job has its order."""
    times = [event.at for event in events(room, job)]
    assert times == sorted(times)
    assert times[0] >= job.created
    assert job.created <= (job.started or job.created) <= job.updated
    if job.ended:
        assert (job.started or job.created) <= job.ended <= job.updated


def stored(machine: StateMachine) -> list[LiveRecord]:
    return [
        LiveRecord(copy.copy(live.job), live.spec, list(live.replicas.values()), tuple(live.past))
        for live in machine.jobs.values()
    ]


class TestStoredTimes:
    def test_a_clock_that_is_set_back_before_each_step_of_a_life(self) -> None:
        room = ready()
        job = room.create(gang(workers=1))
        for step in (room.start, lambda job: room.end(job, ReplicaName("worker", 0)), room.end):
            room.now += BACK
            step(job)
            check(room, job)
        assert (job.state, job.started, job.ended) == (State.SUCCEEDED, job.created, job.created)
        for turn in room.turns:
            for replica in turn.batch.replicas:
                assert replica.started is None or replica.started >= job.created
                assert replica.ended is None or replica.ended >= (replica.started or 0)

    def test_an_attempt_does_not_begin_before_the_one_before_it_has_ended(self) -> None:
        room = ready()
        job = room.create(gang(retries=(Retry((Reason.PROGRAM_FAILED,), 1),)))
        first_start = room.now
        room.start(job)
        room.now += BACK
        room.end(job, code=1)
        room.now += BACK
        room.start(job)
        live = room.machine.jobs[job.id]
        (past,) = live.past
        assert first_start <= (past.started or 0) <= past.ended <= (live.lead.started or 0)
        room.now += BACK
        room.end(job)
        assert (job.ended or 0) >= past.ended
        check(room, job)

    def test_after_a_restart_of_the_service_too(self) -> None:
        room = ready()
        job = room.create(gang())
        room.start(job)
        last = events(room, job)[-1].at
        room.now += BACK
        after = reloaded(room, job.current)
        job = after.machine.jobs[job.id].job
        after.end(job)
        (ended,) = events(after, job)
        assert ended.at >= last
        assert (job.ended or 0) >= (job.started or 0)
        assert job.updated >= (job.ended or 0)

    def test_a_stop_and_a_deletion_are_not_before_what_they_end(self) -> None:
        room = ready()
        job = room.create(gang())
        room.start(job)
        room.now += BACK
        room.stop(job)
        room.end(job, code=None, cause=Cause.STOPPED)
        room.now += BACK
        room.delete(job)
        check(room, job)
        assert (job.deleted or 0) >= (job.ended or 0)


class TestDeadlines:
    @pytest.mark.parametrize("step", [BACK, FORWARD])
    def test_a_wait_lasts_as_long_as_it_may(self, step: int) -> None:
        room = ready(cpu=1)
        room.create(gang())
        job = room.create(gang(max_wait=60))
        room.now += step
        room.tick(58)
        told = explain(room.machine, room.machine.jobs[job.id])
        assert told.gives_up_at == room.now + 2 * SECOND
        room.tick(1)
        assert job.state is State.QUEUED
        room.tick(1)
        assert (job.reason, job.message) == (
            Reason.WAITED,
            "waited 60 seconds in the queue, its maximum waiting time",
        )

    @pytest.mark.parametrize("step", [BACK, FORWARD])
    def test_workers_have_their_time_when_the_lead_has_succeeded(self, step: int) -> None:
        room = ready()
        job = room.create(gang(workers=1, finish_seconds=30))
        room.start(job)
        due = room.end(job).wake_at
        assert due is not None
        room.now += step
        assert not stopped(room.tick(28))
        assert stopped(room.tick(5)) == ["worker-0"]

    def test_what_was_measured_outlives_a_commit_that_failed(self) -> None:
        room = ready(cpu=1)
        room.create(gang())
        job = room.create(gang(max_wait=60))
        room.now += FORWARD
        room.tick(50)
        before, room.machine = room.machine, StateMachine({"local": Traits("local")}, lambda cluster: "local")
        room.machine.load(stored(before), room.now, room.steady)
        room.machine.inherit(before)
        room.tick(8)
        assert room.machine.jobs[job.id].job.state is State.QUEUED
        live = room.machine.jobs[job.id]
        room.tick(3)
        assert live.job.reason is Reason.WAITED
