"""What a job waits for in a line, and who holds what, as the state machine knows it."""

from tests.control.stepping import Room, gang, ready
from turnout.control.explain import summarize
from turnout.control.overview import overview
from turnout.control.turn import EngineReport
from turnout.engines import Traits
from turnout.job import Drained, Job
from turnout.projects import Quota, Quotas


def line(room: Room, job: Job) -> str:
    return summarize(room.machine, room.machine.jobs[job.id])


def test_a_job_that_waits_names_its_place_and_what_is_missing() -> None:
    room = ready(cpu=4)
    holds = room.create(gang(cpu=3))
    head = room.create(gang(cpu=2))
    small = room.create(gang(cpu=1))
    huge = room.create(gang(cpu=9))
    assert line(room, holds) == ""
    assert line(room, head) == "place 1 of 3: needs 1 CPU more"
    assert line(room, small) == "place 2 of 3: the jobs ahead of it start first"
    assert line(room, huge) == "place 3 of 3: needs the whole machine"


def test_the_place_is_counted_in_the_project() -> None:
    room = ready(cpu=1)
    room.create(gang())
    mine = [room.create(gang()), room.create(gang())]
    room.project = "q"
    theirs = room.create(gang())
    assert line(room, mine[1]).startswith("place 2 of 2 in p: ")
    assert line(room, theirs).startswith("place 1 of 1 in q: ")


def test_a_job_that_waits_for_its_quota_says_so() -> None:
    room = ready(cpu=4)
    room.machine.quotas = Quotas({"p": Quota(cpus=1)})
    room.create(gang())
    assert line(room, room.create(gang())) == "place 1 of 1: the quota of project p (1 CPU) is used up"


def test_a_job_waits_for_its_engine_or_its_operator() -> None:
    room = Room()
    waits = room.create(gang())
    assert line(room, waits) == "place 1 of 1: the engine has not reported yet"
    room = ready()
    room.step(EngineReport("local", Drained(on=True)))
    assert line(room, room.create(gang())) == "place 1 of 1: the cluster here is drained"


def test_a_job_waits_in_the_queue_of_its_cluster_or_for_room_there() -> None:
    room = Room(traits=Traits("slurm", pending=1))
    room.sync()
    there, waits = room.create(gang()), room.create(gang())
    assert line(room, there) == "waits in the queue of here"
    assert line(room, waits) == "place 1 of 1: the queue of here is full"


def test_a_reader_of_one_project_sees_its_own_jobs_and_how_much_others_hold() -> None:
    room = ready(cpu=4)
    theirs = room.create(gang(cpu=3))
    room.project = "q"
    ours = room.create(gang(cpu=1))
    waits = room.create(gang(cpu=2))
    everything = overview(room.machine, "local", None)
    assert [holder.job.id for holder in everything.holders] == [theirs.id, ours.id]
    own = overview(room.machine, "local", "q")
    assert [holder.job.id for holder in own.holders] == [ours.id]
    assert (own.others.millicores, own.placed, own.free.millicores) == (3000, 2, 0)
    assert [(waiter.job.id, waiter.place) for waiter in own.waiters] == [(waits.id, 1)]
    hidden = overview(room.machine, "local", "p")
    assert (hidden.waiters, hidden.waiting) == ([], 1)
