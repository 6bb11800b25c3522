"""A job has ended when what it wrote is where it belongs."""

import copy

import msgspec

from tests.control.stepping import Room, gang, kinds, started
from turnout.control.live_job import SECOND
from turnout.control.turn import EngineReport, Forget, Remove, Save, StopGang, Turn
from turnout.job import Cause, EventKind, Job, Mount, Reason, Retry, Saved, Spec, State
from turnout.store import LiveRecord

OUTPUT = Mount("obs://bucket/out", "/out")
INPUT = Mount("obs://bucket/in", "/in", read_only=True)


def writing(**policy: object) -> Spec:
    return msgspec.structs.replace(gang(**policy), mounts=(OUTPUT,))  # type: ignore[arg-type]


def running(spec: Spec) -> tuple[Room, Job]:
    room = Room()
    room.sync()
    job = room.create(spec)
    room.start(job)
    return room, job


def saved(room: Room, job: Job, trouble: str = "", message: str = "") -> Turn:
    return room.step(EngineReport("local", Saved(job.current, room.now, trouble, message)))


def test_success_waits_for_the_last_upload() -> None:
    room, job = running(writing())
    assert kinds(room.end(job)) == [Save]
    assert job.state is State.RUNNING
    turn = saved(room, job, message="2 files went to obs://bucket/out")
    assert (job.state, job.ended) == (State.SUCCEEDED, room.now - SECOND)
    assert kinds(turn) == [Forget]
    assert EventKind.SAVED in [event.kind for event in turn.batch.events]


def test_results_that_cannot_be_stored_are_a_failure() -> None:
    room, job = running(writing())
    room.end(job)
    saved(room, job, "obs://bucket/out: no permission")
    assert (job.state, job.reason) == (State.FAILED, Reason.STAGING_FAILED)
    assert job.message == "its outputs could not be stored: obs://bucket/out: no permission"


def test_a_rule_may_leave_out_who_succeeded_and_could_not_be_stored() -> None:
    rule = Retry((Reason.STAGING_FAILED,), 2, not_codes=(0,))
    room, job = running(writing(retries=(rule,)))
    room.end(job)
    saved(room, job, "obs://bucket/out: no permission")
    assert (job.state, job.attempt) == (State.FAILED, 1)

    room, job = running(writing(retries=(rule,)))
    room.end(job, code=None, cause=Cause.STAGING)
    saved(room, job)
    assert (job.live, job.attempt) == (True, 2)


def test_one_that_failed_or_was_stopped_is_saved_too_and_keeps_its_reason() -> None:
    room, job = running(writing())
    assert kinds(room.end(job, code=3)) == [Save]
    saved(room, job, "no such bucket")
    assert job.reason is Reason.PROGRAM_FAILED
    assert job.message == "master-0 exited with code 3; its outputs could not be stored: no such bucket"

    room, job = running(writing())
    room.stop(job)
    assert kinds(room.end(job, code=None, cause=Cause.STOPPED)) == [Save]
    saved(room, job)
    assert job.state is State.STOPPED


def test_nothing_is_saved_where_nothing_can_be_written_or_nothing_began() -> None:
    room, job = running(msgspec.structs.replace(gang(), mounts=(INPUT,)))
    assert kinds(room.end(job)) == [Forget]

    room = Room()
    room.sync()
    job = room.create(writing())
    assert kinds(room.end(job, code=None, cause=Cause.STAGING, message="no such key")) == [Forget]
    assert job.reason is Reason.STAGING_FAILED


def test_its_room_is_free_while_it_is_being_saved() -> None:
    room, job = running(writing(cpu=4))
    waits = room.create(gang(cpu=4))
    assert started(room.end(job)) == [waits.id]
    saved(room, job)
    assert job.state is State.SUCCEEDED


def test_a_retry_comes_after_it() -> None:
    room, job = running(writing(retries=(Retry((Reason.PROGRAM_FAILED,), 1),)))
    assert kinds(room.end(job, code=3)) == [Save]
    assert started(saved(room, job)) == [job.id]
    assert job.attempt == 2


def test_deleting_it_meanwhile_waits_for_it() -> None:
    room, job = running(writing())
    room.end(job)
    room.delete(job)
    assert kinds(saved(room, job)) == [Forget, Remove]


def test_a_service_that_was_killed_meanwhile_saves_again_whether_the_supervisor_is_there_or_not() -> None:
    room, job = running(writing())
    live = room.machine.jobs[job.id]
    room.end(job)
    for held, expected in (([], [Save]), ([job.current], [StopGang, Save])):
        stored = LiveRecord(copy.copy(job), live.spec, list(live.replicas.values()))
        after = Room(stored=[stored])
        assert kinds(after.sync(*held)) == expected
        again = after.machine.jobs[job.id].job
        saved(after, again)
        assert again.state is State.SUCCEEDED


def test_repeated_and_early_reports_change_nothing() -> None:
    room, job = running(writing())
    saved(room, job)
    assert job.state is State.RUNNING
    room.end(job)
    saved(room, job)
    assert kinds(saved(room, job)) == []
