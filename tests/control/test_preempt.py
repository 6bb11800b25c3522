"""Which jobs are preempted for a job of higher priority."""

from tests.control.stepping import MASTER, Room, events, gang, ready, reloaded, started, stopped
from turnout.control.explain import explain
from turnout.control.turn import EngineReport, StopGang, Turn
from turnout.job import Capacity, Cause, EventKind, Job, Node, Reason, State
from turnout.job.resources import GIB


def low(free: Room, name: str = "", **policy: object) -> Job:
    job = free.create(gang(preemptible=True, **policy), name)  # type: ignore[arg-type]
    free.start(job)
    return job


def gone(turn: Turn) -> list[int]:
    return [one.attempt.job for one in turn.instructions if isinstance(one, StopGang)]


def has_ended(free: Room, job: Job) -> Turn:
    return free.end(job, code=None, signal=15, cause=Cause.STOPPED)


def why(free: Room, job: Job) -> str:
    return " ".join(explain(free.machine, free.machine.jobs[job.id]).why)


def test_the_victim_goes_back_to_the_queue_and_the_head_gets_its_place() -> None:
    free = ready(cpu=1)
    victim = low(free, "nightly")
    head = free.create(gang(priority=3), "urgent")
    turn = free.turns[-1]
    assert stopped(turn) == ["master-0"]
    assert victim.state is State.STOPPING
    assert events(turn, EventKind.PREEMPTED) == ["preempted for urgent, which has priority 3"]
    turn = has_ended(free, victim)
    assert started(turn) == [head.id]
    assert (victim.state, victim.reason) == (State.QUEUED, None)
    assert [(one.attempt, one.reason, one.replica) for one in turn.batch.past] == [(1, Reason.PREEMPTED, "")]
    assert events(turn, EventKind.RETRIED) == [
        "attempt 1 ended: preempted for urgent, which has priority 3; attempt 2 follows (not counted as a retry)"
    ]
    free.start(head)
    assert started(free.end(head)) == [victim.id]
    assert victim.attempt == 2


def test_only_who_is_preemptible_and_of_strictly_lower_priority() -> None:
    free = ready(cpu=3)
    low(free, priority=2)
    free.start(free.create(gang()))
    free.start(free.create(gang()))
    head = free.create(gang(priority=2))
    assert (gone(free.turns[-1]), head.state) == ([], State.QUEUED)


def test_nobody_goes_in_vain() -> None:
    free = ready(cpu=4)
    low(free, cpu=1)
    free.start(free.create(gang(cpu=3)))
    head = free.create(gang(cpu=2, priority=1))
    assert (gone(free.turns[-1]), head.state) == ([], State.QUEUED)


def test_as_few_as_can_be_then_the_lowest_priority_then_the_shortest_run() -> None:
    free = ready(cpu=8)
    big, least, old, young = (low(free, cpu=c, priority=p) for c, p in ((4, 1), (1, 0), (1, 1), (1, 1)))
    low(free, cpu=1, priority=1)
    for cpu, expected in ((4, [big.id]), (1, [least.id])):
        alternative = reloaded(free, *(live.job.current for live in free.machine.jobs.values()))
        alternative.create(gang(cpu=cpu, priority=2))
        assert gone(alternative.turns[-1]) == expected
    free.create(gang(cpu=2, priority=2))
    assert set(gone(free.turns[-1])) == {big.id}, "one that is big rather than two that are small"
    assert old.state is young.state is State.RUNNING


def test_the_shortest_run_goes_first_among_equals() -> None:
    free = ready(cpu=2)
    low(free)
    young = low(free)
    free.create(gang(priority=1))
    assert gone(free.turns[-1]) == [young.id]


def test_no_more_go_while_enough_are_going() -> None:
    free = ready(cpu=2)
    first, second = low(free), low(free)
    head = free.create(gang(cpu=2, priority=1))
    assert len(gone(free.turns[-1])) == 2
    assert gone(free.tick(1)) == []
    has_ended(free, first)
    assert (head.state, gone(free.turns[-1])) == (State.QUEUED, [])
    assert started(has_ended(free, second)) == [head.id]


def test_nobody_slips_into_the_room_that_is_made() -> None:
    free = ready(cpu=2)
    first, second = low(free, time_limit=5000), low(free, time_limit=5000)
    head = free.create(gang(cpu=2, priority=1))
    quick = free.create(gang(time_limit=1))
    has_ended(free, first)
    assert quick.state is State.QUEUED, "however short it is"
    assert started(has_ended(free, second)) == [head.id]


def test_nor_into_what_was_free_before() -> None:
    free = ready(cpu=4)
    victim = low(free, cpu=2, time_limit=5000)
    head, quick = free.creation(gang(cpu=3, priority=1)), free.creation(gang(time_limit=1))
    turn = free.step(head, quick)
    assert (gone(turn), started(turn)) == ([victim.id], [])
    assert started(has_ended(free, victim)) == [head.job_id]


def test_the_victim_takes_its_place_in_the_queue_by_its_age() -> None:
    free = ready(cpu=1)
    victim = low(free)
    later = free.create(gang())
    head = free.create(gang(priority=1))
    has_ended(free, victim)
    assert [waiting.job_id for waiting in free.machine.queues["local"]] == [victim.id, later.id]
    assert free.turns[-1].wake_at is None, "it waits as long as it takes"
    assert head.state is State.PREPARING


def test_nodes_are_looked_at_one_by_one() -> None:
    """Two halves on two nodes are not a whole."""
    free = ready()
    free.step(EngineReport("local", Capacity((Node("a", 2000, 16 * GIB, 0), Node("b", 2000, 16 * GIB, 0)))))
    on_a = [low(free), low(free)]
    free.start(free.create(gang()))
    on_b = low(free)
    free.create(gang(cpu=2, priority=1))
    assert sorted(gone(free.turns[-1])) == [job.id for job in on_a]
    assert on_b.state is State.RUNNING


def test_with_very_many_candidates_no_job_is_preempted_needlessly() -> None:
    free = ready(cpu=60)
    jobs = [low(free, memory=1) for _ in range(60)]
    free.create(gang(cpu=20, memory=1, priority=1))
    assert sorted(gone(free.turns[-1])) == [job.id for job in jobs[40:]]


def test_a_priority_that_is_raised_may_preempt_at_once() -> None:
    free = ready(cpu=1)
    victim = low(free)
    job = free.create(gang())
    assert gone(free.amend(job, priority=1)) == [victim.id]


def test_one_that_was_done_before_the_stop_reached_it_has_succeeded() -> None:
    free = ready(cpu=1)
    victim = low(free)
    head = free.create(gang(priority=1))
    turn = free.end(victim, MASTER, code=0)
    assert (victim.state, victim.reason) == (State.SUCCEEDED, Reason.SUCCEEDED)
    assert started(turn) == [head.id]


def test_a_victim_that_is_stopped_meanwhile_does_not_come_back() -> None:
    free = ready(cpu=1)
    victim = low(free)
    free.create(gang(priority=1))
    free.stop(victim)
    has_ended(free, victim)
    assert (victim.state, victim.message) == (State.STOPPED, "stopped by alice")


def test_a_restart_in_the_middle_changes_nothing() -> None:
    free = ready(cpu=1)
    victim = low(free)
    head = free.create(gang(priority=1))
    after = reloaded(free, victim.current)
    assert gone(after.turns[-1]) == [victim.id], "the stop may not have been heard"
    again = after.machine.jobs[victim.id].job
    assert started(has_ended(after, again)) == [head.id]
    assert again.state is State.QUEUED


def test_an_explanation_names_the_jobs_that_are_preempted() -> None:
    free = ready(cpu=2)
    victim = low(free, "nightly")
    free.start(free.create(gang(), "steady"))
    first = free.create(gang(priority=2), "urgent")
    second = free.create(gang(priority=1), "next")
    assert "There will be room when these have ended: nightly." in why(free, first)
    assert "stopping: preempted for urgent" in why(free, victim)
    assert "preempts" not in why(free, second)
    has_ended(free, victim)
    assert "Attempt 1 ended: preempted for urgent" in why(free, victim)


def test_an_explanation_names_the_jobs_that_it_would_preempt() -> None:
    free = ready(cpu=4)
    low(free, "nightly", cpu=1)
    free.start(free.create(gang(cpu=3)))
    free.create(gang(cpu=4, priority=2), "huge")
    job = free.create(gang(cpu=1, priority=1))
    assert "When it is next, it preempts nightly." in why(free, job)


def test_other_projects_are_not_named() -> None:
    free = ready(cpu=1)
    victim = low(free)
    free.project = "q"
    free.create(gang(priority=1), "secret")
    assert victim.message == "preempted for a job of another project, which has priority 1"
