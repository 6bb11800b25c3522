"""What can be changed of a job that is there already."""

from tests.control.stepping import Room, events, gang, ready, started
from turnout.control.turn import Amend, Delete
from turnout.errors import NotFound, WrongState
from turnout.job import EventKind, Job, State


def crowded() -> tuple[Room, Job, Job, Job]:
    """One runs, two wait."""
    room = ready(cpu=1)
    return room, room.create(gang()), room.create(gang()), room.create(gang())


def test_a_new_document_and_new_labels_are_written_and_the_job_is_updated() -> None:
    room = ready()
    job = room.create(gang())
    turn = room.amend(job, document=b"{1}", labels={"kind": "job"})
    assert turn.answers == [job]
    assert turn.batch.documents == [(job.id, b"{1}")]
    assert turn.batch.labels == [(job.id, {"kind": "job"})]
    assert turn.batch.jobs == [job]
    assert job.updated == room.now
    assert turn.batch.events == []


def test_a_waiting_job_moves_with_its_priority() -> None:
    room, running, second, third = crowded()
    turn = room.amend(third, priority=2)
    assert events(turn, EventKind.CHANGED) == ["priority 0 → 2, set by alice"]
    assert [waiting.job_id for waiting in room.machine.queues["local"]] == [third.id, second.id]
    assert started(room.end(running)) == [third.id]


def test_one_that_was_moved_back_does_not_keep_its_old_place() -> None:
    room, running, second, third = crowded()
    room.amend(second, priority=5)
    room.amend(second, priority=-1)
    assert started(room.end(running)) == [third.id]
    assert started(room.end(third)) == [second.id]


def test_a_waiting_job_keeps_its_deadline_when_it_moves() -> None:
    room = ready(cpu=1)
    room.create(gang())
    job = room.create(gang(max_wait=60))
    room.amend(job, priority=2)
    room.tick(60)
    assert job.state is State.FAILED


def test_the_same_priority_is_no_event() -> None:
    room, _, second, _ = crowded()
    assert room.amend(second, priority=0).batch.events == []


def test_one_that_has_ended_takes_a_document_but_no_other_priority() -> None:
    room = ready()
    job = room.create(gang())
    room.start(job)
    room.end(job)
    assert room.amend(job, document=b"{}", priority=0).answers == [job]
    turn = room.amend(job, document=b"{}", priority=1)
    assert isinstance(turn.answers[0], WrongState)
    assert not turn.batch, "all of it or nothing"


def test_one_that_is_deleted_or_was_never_there_is_not_found() -> None:
    room = ready()
    job = room.create(gang())
    room.delete(job)
    assert isinstance(room.amend(job, document=b"{}").answers[0], NotFound)
    assert isinstance(room.step(Amend(77, "alice", None, b"{}")).answers[0], NotFound)


def test_a_deletion_in_the_same_turn_is_not_undone() -> None:
    """Each command brings its own copy of what the store has."""
    room = ready()
    job = room.create(gang())
    room.start(job)
    room.end(job)
    one, other = (Job(**{name: getattr(job, name) for name in job.__struct_fields__}) for _ in range(2))
    turn = room.step(Delete(job.id, "alice", one), Amend(job.id, "bob", other, b"{}"))
    assert isinstance(turn.answers[1], NotFound)
    assert [row.deleted for row in turn.batch.jobs] == [room.now]
