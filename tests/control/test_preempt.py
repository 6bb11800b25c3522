"""Who has to go for a job of higher priority."""

from tests.control.machine_room import MASTER, Room, events, gang, ready, reloaded, started, stopped
from turnout.control.explain import explain
from turnout.control.turn import StopGang, Told, Turn
from turnout.job import Capacity, Cause, EventKind, Job, Node, Reason, State
from turnout.job.resources import GIB


def low(room: Room, name: str = "", **policy: object) -> Job:
    job = room.create(gang(preemptible=True, **policy), name)  # type: ignore[arg-type]
    room.start(job)
    return job


def gone(turn: Turn) -> list[int]:
    return [one.attempt.job for one in turn.instructions if isinstance(one, StopGang)]


def has_ended(room: Room, job: Job) -> Turn:
    return room.end(job, code=None, signal=15, cause=Cause.STOPPED)


def why(room: Room, job: Job) -> str:
    return " ".join(explain(room.machine, room.machine.jobs[job.id]).why)


def test_the_victim_goes_back_to_the_queue_and_the_head_gets_its_place() -> None:
    room = ready(cpu=1)
    victim = low(room, "nightly")
    head = room.create(gang(priority=3), "urgent")
    turn = room.turns[-1]
    assert stopped(turn) == ["master-0"]
    assert victim.state is State.STOPPING
    assert events(turn, EventKind.PREEMPTED) == ["preempted for urgent, which has priority 3"]
    turn = has_ended(room, victim)
    assert started(turn) == [head.id]
    assert (victim.state, victim.reason) == (State.QUEUED, None)
    assert [(one.attempt, one.reason, one.replica) for one in turn.batch.past] == [(1, Reason.PREEMPTED, "")]
    assert events(turn, EventKind.RETRIED) == [
        "attempt 1 ended: preempted for urgent, which has priority 3; attempt 2 follows (not counted as a retry)"
    ]
    room.start(head)
    assert started(room.end(head)) == [victim.id]
    assert victim.attempt == 2


def test_only_who_is_preemptible_and_of_strictly_lower_priority() -> None:
    room = ready(cpu=3)
    low(room, priority=2)
    room.start(room.create(gang()))
    room.start(room.create(gang()))
    head = room.create(gang(priority=2))
    assert (gone(room.turns[-1]), head.state) == ([], State.QUEUED)


def test_nobody_goes_in_vain() -> None:
    room = ready(cpu=4)
    low(room, cpu=1)
    room.start(room.create(gang(cpu=3)))
    head = room.create(gang(cpu=2, priority=1))
    assert (gone(room.turns[-1]), head.state) == ([], State.QUEUED)


def test_as_few_as_can_be_then_the_lowest_priority_then_the_shortest_run() -> None:
    room = ready(cpu=8)
    big, least, old, young = (low(room, cpu=c, priority=p) for c, p in ((4, 1), (1, 0), (1, 1), (1, 1)))
    low(room, cpu=1, priority=1)
    for cpu, expected in ((4, [big.id]), (1, [least.id])):
        alternative = reloaded(room, *(live.job.current for live in room.machine.jobs.values()))
        alternative.create(gang(cpu=cpu, priority=2))
        assert gone(alternative.turns[-1]) == expected
    room.create(gang(cpu=2, priority=2))
    assert set(gone(room.turns[-1])) == {big.id}, "one that is big rather than two that are small"
    assert old.state is young.state is State.RUNNING


def test_the_shortest_run_goes_first_among_equals() -> None:
    room = ready(cpu=2)
    low(room)
    young = low(room)
    room.create(gang(priority=1))
    assert gone(room.turns[-1]) == [young.id]


def test_no_more_go_while_enough_are_going() -> None:
    room = ready(cpu=2)
    first, second = low(room), low(room)
    head = room.create(gang(cpu=2, priority=1))
    assert len(gone(room.turns[-1])) == 2
    assert gone(room.tick(1)) == []
    has_ended(room, first)
    assert (head.state, gone(room.turns[-1])) == (State.QUEUED, [])
    assert started(has_ended(room, second)) == [head.id]


def test_nobody_slips_into_the_room_that_is_made() -> None:
    room = ready(cpu=2)
    first, second = low(room, time_limit=5000), low(room, time_limit=5000)
    head = room.create(gang(cpu=2, priority=1))
    quick = room.create(gang(time_limit=1))
    has_ended(room, first)
    assert quick.state is State.QUEUED, "however short it is"
    assert started(has_ended(room, second)) == [head.id]


def test_nor_into_what_was_free_before() -> None:
    room = ready(cpu=4)
    victim = low(room, cpu=2, time_limit=5000)
    head, quick = room.creation(gang(cpu=3, priority=1)), room.creation(gang(time_limit=1))
    turn = room.step(head, quick)
    assert (gone(turn), started(turn)) == ([victim.id], [])
    assert started(has_ended(room, victim)) == [head.job_id]


def test_the_victim_takes_its_place_in_the_queue_by_its_age() -> None:
    room = ready(cpu=1)
    victim = low(room)
    later = room.create(gang())
    head = room.create(gang(priority=1))
    has_ended(room, victim)
    assert [waiting.job_id for waiting in room.machine.queues["local"]] == [victim.id, later.id]
    assert room.turns[-1].wake_at is None, "it waits as long as it takes"
    assert head.state is State.PREPARING


def test_nodes_are_looked_at_one_by_one() -> None:
    """Two halves on two nodes are not a whole."""
    room = ready()
    room.step(Told("local", Capacity((Node("a", 2, 16 * GIB, 0), Node("b", 2, 16 * GIB, 0)))))
    on_a = [low(room), low(room)]
    room.start(room.create(gang()))
    on_b = low(room)
    room.create(gang(cpu=2, priority=1))
    assert sorted(gone(room.turns[-1])) == [job.id for job in on_a]
    assert on_b.state is State.RUNNING


def test_where_there_are_very_many_nobody_goes_who_could_be_spared() -> None:
    room = ready(cpu=60)
    jobs = [low(room, memory=1) for _ in range(60)]
    room.create(gang(cpu=20, memory=1, priority=1))
    assert sorted(gone(room.turns[-1])) == [job.id for job in jobs[40:]]


def test_a_priority_that_is_raised_may_preempt_at_once() -> None:
    room = ready(cpu=1)
    victim = low(room)
    job = room.create(gang())
    assert gone(room.amend(job, priority=1)) == [victim.id]


def test_one_that_was_done_before_the_stop_reached_it_has_succeeded() -> None:
    room = ready(cpu=1)
    victim = low(room)
    head = room.create(gang(priority=1))
    turn = room.end(victim, MASTER, code=0)
    assert (victim.state, victim.reason) == (State.SUCCEEDED, Reason.SUCCEEDED)
    assert started(turn) == [head.id]


def test_a_victim_that_is_stopped_meanwhile_does_not_come_back() -> None:
    room = ready(cpu=1)
    victim = low(room)
    room.create(gang(priority=1))
    room.stop(victim)
    has_ended(room, victim)
    assert (victim.state, victim.message) == (State.STOPPED, "stopped by alice")


def test_a_restart_in_the_middle_changes_nothing() -> None:
    room = ready(cpu=1)
    victim = low(room)
    head = room.create(gang(priority=1))
    after = reloaded(room, victim.current)
    assert gone(after.turns[-1]) == [victim.id], "the stop may not have been heard"
    again = after.machine.jobs[victim.id].job
    assert started(has_ended(after, again)) == [head.id]
    assert again.state is State.QUEUED


def test_an_explanation_says_who_goes() -> None:
    room = ready(cpu=2)
    victim = low(room, "nightly")
    room.start(room.create(gang(), "steady"))
    first = room.create(gang(priority=2), "urgent")
    second = room.create(gang(priority=1), "next")
    assert "There will be room when these have ended: nightly." in why(room, first)
    assert "being ended: preempted for urgent" in why(room, victim)
    assert "takes the place of" not in why(room, second)
    has_ended(room, victim)
    assert "Attempt 1 ended: preempted for urgent" in why(room, victim)


def test_an_explanation_says_whom_it_would_preempt_when_it_is_next() -> None:
    room = ready(cpu=4)
    low(room, "nightly", cpu=1)
    room.start(room.create(gang(cpu=3)))
    room.create(gang(cpu=4, priority=2), "huge")
    job = room.create(gang(cpu=1, priority=1))
    assert "When it is next, it takes the place of nightly." in why(room, job)


def test_other_projects_are_not_named() -> None:
    room = ready(cpu=1)
    victim = low(room)
    room.project = "q"
    room.create(gang(priority=1), "secret")
    assert victim.message == "preempted for a job of another project, which has priority 1"
