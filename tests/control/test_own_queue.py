"""Engines with a queue of their own: which gangs they get and when, and what is stored of them."""

import copy
from pathlib import Path

from msgspec import structs

from tests.control.scripted import ScriptedEngine, ended, new, until
from tests.control.stepping import MASTER, Room, events, gang, started, stopped
from turnout.control import Controller
from turnout.control.explain import explain
from turnout.control.turn import EngineReport, StartGang
from turnout.engines import EngineRegistry, Traits
from turnout.job import (
    Attempt,
    Cause,
    Ended,
    EventKind,
    Job,
    Pending,
    Reason,
    Retry,
    Spec,
    Started,
    State,
    Submission,
    Submitted,
)
from turnout.store import LiveRecord, Store

SLURM = Traits("slurm", pending=2)


def synced(*held: Attempt) -> Room:
    room = Room(traits=SLURM)
    room.sync(*held)
    return room


def why(room: Room, job: Job) -> list[str]:
    return explain(room.machine, room.machine.jobs[job.id]).why


def test_gangs_are_handed_over_in_order_up_to_the_limit():
    """However large they are: the engine decides when it has room."""
    room = synced()
    jobs = [room.create(gang(cpu=1000, workers=5)) for _ in range(4)]
    assert [job.state for job in jobs] == [State.PREPARING] * 2 + [State.QUEUED] * 2
    turn = room.start(jobs[1])
    assert started(turn) == [jobs[2].id]
    assert (
        why(room, jobs[3])[0]
        == "2 jobs wait in the queue of here, and at most 2 may: it follows when they start."
    )


def test_a_higher_priority_goes_first():
    room = synced()
    first = [room.create(gang()) for _ in range(2)]
    late, urgent = room.create(gang()), room.create(gang(cpu=2, priority=5))
    assert started(room.start(first[0])) == [urgent.id]
    assert late.state is State.QUEUED


def test_nothing_is_handed_over_before_the_engine_has_reported():
    room = Room(traits=SLURM)
    job = room.create(gang())
    assert job.state is State.QUEUED
    assert started(room.sync()) == [job.id]


def test_the_engine_chooses_the_node():
    room = synced()
    job = room.create(gang(workers=1))
    live = room.machine.jobs[job.id]
    assert {replica.node for replica in live.replicas.values()} == {""}
    room.step(EngineReport("local", Started(job.current, MASTER, room.now, 7, "10.0.0.3", node="n3")))
    assert (live.lead.node, live.lead.address) == ("n3", "10.0.0.3")


def test_explain_says_why_it_waits_there():
    room = synced()
    job = room.create(gang())
    assert why(room, job) == ["It was handed to here and has not started there yet."]
    words = "Slurm: waiting for resources, 12 jobs before it in partition gpu"
    room.step(EngineReport("local", Pending(job.current, words)))
    assert why(room, job) == [words]


def test_the_maximum_wait_counts_there_too():
    room = synced()
    job = room.create(gang(max_wait=60))
    turn = room.tick(30)
    assert turn.wake_at is not None
    assert stopped(turn) == []
    turn = room.tick(31)
    assert stopped(turn) == ["master-0"]
    room.end(job, code=None, cause=Cause.STOPPED)
    assert (job.state, job.reason) == (State.FAILED, Reason.WAITED)


def test_a_stop_reaches_the_queue_of_the_engine():
    room = synced()
    job = room.create(gang())
    assert stopped(room.stop(job)) == ["master-0"]
    room.end(job, code=None, cause=Cause.STOPPED)
    assert job.state is State.STOPPED


def test_a_retry_waits_again():
    room = synced()
    job = room.create(gang(retries=(Retry((Reason.PROGRAM_FAILED,), 1),)))
    room.step(EngineReport("local", Pending(job.current, "not yet")))
    room.start(job)
    turn = room.end(job, code=1)
    assert started(turn) == [job.id]
    assert job.attempt == 2
    assert why(room, job) == ["It was handed to here and has not started there yet."]
    assert events(turn, EventKind.PLACED) == ["attempt 2: 1 replica handed to here"]


def test_what_the_engine_calls_it_is_stored():
    room = synced()
    job = room.create(gang())
    turn = room.step(EngineReport("local", Submitted(job.current, "4711")))
    assert turn.batch.submissions == [Submission(job.id, 1, "slurm", "4711")]
    room.end(job)
    assert room.step(EngineReport("local", Submitted(job.current, "4711"))).batch.submissions == []


def reloaded(room: Room, job: Job, submission: Submission, cluster: str = "here") -> Room:
    live = room.machine.jobs[job.id]
    stored = structs.replace(job, cluster=cluster)
    replicas = [copy.copy(replica) for replica in live.replicas.values()]
    return Room(stored=[LiveRecord(stored, live.spec, replicas, submission=submission)], traits=SLURM)


def running(spec: Spec | None = None) -> tuple[Room, Job, Submission]:
    room = synced()
    job = room.create(spec or gang())
    room.start(job)
    return room, job, Submission(job.id, 1, "slurm", "4711")


def test_a_cluster_that_is_not_in_the_settings_keeps_its_jobs():
    """They are neither started nor lost: nobody knows what becomes of them there."""
    room, job, submission = running(gang(retries=(Retry((Reason.NODE_LOST,), 3),)))
    after = reloaded(room, job, submission, cluster="gone")
    turn = after.sync()
    live = after.machine.jobs[job.id]
    assert (live.job.state, turn.instructions, turn.batch.jobs) == (State.RUNNING, [], [])
    assert "[clusters.gone]" in why(after, job)[0]
    assert [one.engine for one in after.stop(live.job).instructions] == [""]
    assert live.job.state is State.STOPPING


def test_a_job_that_waits_for_a_cluster_that_is_gone_can_be_stopped():
    room = synced()
    queued = structs.replace(room.create(gang()), state=State.QUEUED, attempt=0, cluster="gone")
    after = Room(stored=[LiveRecord(queued, gang(), [])], traits=SLURM)
    assert started(after.sync()) == []
    assert "waits until the cluster is back" in why(after, queued)[0]
    after.stop(queued)
    assert queued.state is State.STOPPED


def test_a_cluster_of_another_kind_does_not_get_the_job():
    room, job, submission = running()
    after = reloaded(room, job, structs.replace(submission, engine="kubernetes"))
    assert not any(isinstance(one, StartGang) for one in after.sync().instructions)
    assert after.machine.jobs[job.id].job.state is State.RUNNING
    assert reloaded(room, job, submission).machine.jobs[job.id].engine == "local"


class Slurm(ScriptedEngine):
    traits = Traits("slurm", pending=5)


async def test_the_next_service_tells_the_engine_what_it_submitted(tmp_path: Path) -> None:
    engine, elsewhere = Slurm(), Slurm()
    database = tmp_path / "turnout.db"
    clusters = {"here": "here", "there": "there"}
    store = Store.open("", database)
    control = Controller(store, EngineRegistry({"here": engine, "there": elsewhere}, clusters))  # type: ignore[dict-item]
    await control.start()
    engine.sync()
    job = await control.create(new("one"))
    engine.said.put_nowait(Submitted(job.current, "4711"))
    engine.said.put_nowait(Started(job.current, MASTER, 1, 2, "127.0.0.9"))
    await until(control, store, job, lambda found: found.state is State.RUNNING)
    await control.close()
    await store.close()

    engine, elsewhere = Slurm(), Slurm()
    store = Store.open("", database)
    control = Controller(store, EngineRegistry({"here": engine, "there": elsewhere}, clusters))  # type: ignore[dict-item]
    await control.start()
    try:
        assert (engine.remembered, elsewhere.remembered) == ({job.current: "4711"}, {})
        engine.said.put_nowait(Ended(job.current, MASTER, 3, Cause.EXIT, 0))
        engine.sync(job.current)
        assert (await ended(control, store, job)).state is State.SUCCEEDED
    finally:
        await control.close()
        await store.close()
