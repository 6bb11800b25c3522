"""Translated jobs in the queue: who gives way, who waits how long, what is tried again."""

from typing import Any

from tests.control.stepping import Room, events
from tests.dialects.vertex.jobs import job, pool, translated
from turnout.control.live_job import SECOND
from turnout.dialects.vertex.errors import CODES
from turnout.dialects.vertex.render import REASONS
from turnout.job import Cause, EventKind, Job, Reason, ReplicaName, Spec, State

LEAD, WORKER = ReplicaName("workerpool0", 0), ReplicaName("workerpool1", 0)
DAY = 86_400


def spec(*workers: dict[str, Any], **scheduling: Any) -> Spec:
    """On n1-standard-4: four cores each."""
    return translated(job(pool(), *workers, spec={"scheduling": scheduling})).spec


def room() -> Room:
    made = Room(cpu=8, memory=64 << 30)
    made.sync()
    return made


def test_a_spot_job_gives_way_and_comes_back():
    here = room()
    spot = here.create(spec(pool(), strategy="SPOT"))
    here.start(spot)
    usual = here.create(spec(pool()))
    assert events(here.turns[-1], EventKind.PREEMPTED)
    assert (spot.state, usual.state) == (State.STOPPING, State.QUEUED)
    for name in (LEAD, WORKER):
        here.end(spot, name, code=None, cause=Cause.STOPPED)
    assert (spot.state, usual.state) == (State.QUEUED, State.PREPARING)
    here.start(usual)
    here.end(usual, LEAD)
    here.end(usual, WORKER, code=None, cause=Cause.STOPPED)
    assert (usual.state, spot.state, spot.attempt) == (State.SUCCEEDED, State.PREPARING, 2)


def preempted(here: Room, spot: Job) -> None:
    """By a job that ends as soon as it has the place."""
    here.start(spot)
    usual = here.create(spec(pool()))
    for name in (LEAD, WORKER):
        here.end(spot, name, code=None, cause=Cause.STOPPED)
    here.start(usual)
    here.end(usual, LEAD)
    here.end(usual, WORKER, code=None, cause=Cause.STOPPED)


def test_a_spot_job_comes_back_six_times():
    here = room()
    spot = here.create(spec(pool(), strategy="SPOT"))
    for number in range(6):
        preempted(here, spot)
        assert (spot.state, spot.attempt) == (State.PREPARING, number + 2)
    preempted(here, spot)
    assert (spot.state, spot.reason) == (State.FAILED, Reason.PREEMPTED)
    assert CODES[REASONS[Reason.PREEMPTED]].number == 8


def test_a_spot_job_without_retries_does_not_come_back():
    here = room()
    spot = here.create(spec(pool(), strategy="SPOT", disableRetries=True))
    preempted(here, spot)
    assert (spot.state, spot.reason, spot.attempt) == (State.FAILED, Reason.PREEMPTED, 1)


def test_usual_jobs_and_other_spot_jobs_do_not_preempt():
    here = room()
    here.create(spec(pool()))
    here.create(spec(pool(), strategy="SPOT"))
    waiting = here.create(spec(pool(), strategy="SPOT"))
    assert waiting.state is State.QUEUED
    assert not any(events(turn, EventKind.PREEMPTED) for turn in here.turns)


def test_a_flexible_start_waits_a_day_unless_it_says_otherwise():
    here = room()
    here.create(spec(pool(), timeout=f"{100 * DAY}s"))
    usual, short = (
        here.create(spec(strategy="FLEX_START", timeout="60s", **more))
        for more in ({}, {"maxWaitDuration": "60s"})
    )
    endless = here.create(spec(strategy="FLEX_START", timeout="60s", maxWaitDuration="0s"))
    here.tick(61)
    assert (short.state, short.reason, usual.state) == (State.FAILED, Reason.WAITED, State.QUEUED)
    here.tick(DAY)
    assert (usual.state, usual.reason) == (State.FAILED, Reason.WAITED)
    here.tick(40 * DAY)
    assert endless.state is State.QUEUED


def test_the_timeout_is_a_failure_of_its_own():
    here = room()
    one = here.create(spec(pool(), timeout="60s"))
    here.start(one)
    here.end(one, LEAD, code=None, cause=Cause.TIME_LIMIT, signal=15)
    here.end(one, WORKER, code=None, cause=Cause.TIME_LIMIT, signal=15)
    assert (one.state, one.reason, one.attempt) == (State.FAILED, Reason.TIME_LIMIT, 1)
    assert CODES[REASONS[Reason.TIME_LIMIT]].number == 4


def test_the_whole_job_starts_again_where_that_is_wanted():
    here = room()
    one = here.create(spec(pool(), restartJobOnWorkerRestart=True))
    here.start(one)
    here.end(one, WORKER, code=None, signal=9)
    assert one.state is State.STOPPING
    here.end(one, LEAD, code=None, cause=Cause.STOPPED)
    assert (one.state, one.attempt) == (State.PREPARING, 2)


def test_success_is_the_leads_and_the_others_are_ended():
    here = room()
    one = here.create(spec(pool()))
    here.start(one)
    here.end(one, LEAD)
    assert events(here.turns[-1], EventKind.STOPPING) == []
    here.end(one, WORKER, code=None, cause=Cause.STOPPED)
    assert one.state is State.SUCCEEDED


def test_a_job_that_starts_over_waits_as_long_as_it_takes():
    here = room()
    one = here.create(spec(pool(), restartJobOnWorkerRestart=True))
    here.start(one)
    here.end(one, WORKER, code=None, signal=9)
    here.resize(4)
    here.end(one, LEAD, code=None, cause=Cause.STOPPED)
    live = here.machine.jobs[one.id]
    live.queued_at -= 40 * DAY * SECOND
    assert live.gives_up_at is None
