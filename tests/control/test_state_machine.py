"""The decisions of the state machine, without a process or a clock."""

import pytest

from tests.control.stepping import MASTER, Room, gang, kinds, ready, started, stopped
from turnout.control.turn import Delete, EngineReport, Forget, Remove, RestartReplica, StartGang, StopGang
from turnout.errors import AlreadyExists, NotFound, Unavailable, WrongState
from turnout.job import (
    Capacity,
    Cause,
    Ended,
    EventKind,
    Node,
    Reason,
    ReplicaName,
    ReplicaState,
    Retry,
    Spec,
    Started,
    State,
)
from turnout.job.resources import GIB
from turnout.store import LiveRecord

WORKER = ReplicaName("worker", 0)
PS = ReplicaName("ps", 0)


class TestLife:
    def test_a_job_that_fits_is_created_and_placed_in_one_commit(self) -> None:
        room = ready()
        job = room.create(gang(workers=2))
        turn = room.turns[-1]
        assert [row for row, _ in turn.batch.created] == [job]
        assert job.state is State.PREPARING
        assert len(turn.batch.attempts) == 3
        assert turn.batch.jobs == []
        assert started(turn) == [job.id]

    def test_nothing_is_placed_before_the_engine_has_told_what_it_holds(self) -> None:
        room = Room()
        job = room.create(gang())
        assert job.state is State.QUEUED
        assert started(room.sync()) == [job.id]

    def test_it_runs_once_its_lead_runs_and_succeeds_once_its_lead_exits_with_0(self) -> None:
        room = ready()
        job = room.create(gang())
        room.start(job)
        assert job.state is State.RUNNING
        assert job.started
        turn = room.end(job, code=0)
        assert (job.state, job.reason, job.message) == (State.SUCCEEDED, Reason.SUCCEEDED, "")
        assert kinds(turn) == [Forget]
        assert room.machine.jobs == {}

    def test_start_and_end_in_one_turn_are_one_row_and_two_events(self) -> None:
        room = ready()
        job = room.create(gang())
        live = room.machine.jobs[job.id]
        turn = room.step(
            EngineReport("local", Started(job.current, MASTER, 5, 7, "")),
            EngineReport("local", Ended(job.current, MASTER, 6, Cause.EXIT, 0)),
        )
        assert turn.batch.jobs == [job]
        assert turn.batch.replicas == [live.lead]
        assert [event.kind for event in turn.batch.events] == [EventKind.STARTED, EventKind.ENDED]
        # Webhooks and metrics see both changes.
        states = [(one.was, one.job.state, one.events) for one in turn.transitions]
        assert states == [
            (State.PREPARING, State.RUNNING, ("running",)),
            (State.RUNNING, State.SUCCEEDED, ("succeeded",)),
        ]
        assert (turn.transitions[0].job.ended, turn.transitions[0].job.reason) == (None, None)
        assert not any(room.machine.transitions.counts.values())

    @pytest.mark.parametrize(
        ("end", "reason", "message"),
        [
            ({"code": 3}, Reason.PROGRAM_FAILED, "master-0 exited with code 3"),
            ({"code": None, "signal": 11}, Reason.KILLED, "master-0 was killed by SIGSEGV"),
            (
                {"code": None, "signal": 9, "cause": Cause.OUT_OF_MEMORY},
                Reason.OUT_OF_MEMORY,
                "ran out of memory",
            ),
            ({"code": None, "cause": Cause.TIME_LIMIT}, Reason.TIME_LIMIT, "time limit"),
            ({"code": 127, "cause": Cause.NOT_FOUND, "message": "no ls"}, Reason.PROGRAM_NOT_FOUND, "no ls"),
            ({"code": None, "cause": Cause.STAGING}, Reason.STAGING_FAILED, "files"),
            ({"code": None, "cause": Cause.REFUSED}, Reason.REFUSED, "refused"),
            ({"code": None, "cause": Cause.LOST}, Reason.NODE_LOST, "lost"),
        ],
    )
    def test_every_bad_end_has_its_reason(self, end: dict[str, object], reason: Reason, message: str) -> None:
        room = ready()
        job = room.create(gang())
        room.start(job)
        room.end(job, **end)  # type: ignore[arg-type]
        assert (job.state, job.reason) == (State.FAILED, reason)
        assert message in job.message

    def test_reports_that_come_twice_or_too_late_change_nothing(self) -> None:
        room = ready()
        job = room.create(gang())
        room.start(job)
        assert not room.start(job).batch
        room.end(job)
        turn = room.end(job, code=1)
        assert not turn.batch
        assert kinds(turn) == [StopGang, Forget]
        assert job.state is State.SUCCEEDED


class TestGang:
    def test_when_the_lead_succeeds_ps_end_at_once_and_workers_get_their_time(self) -> None:
        room = ready()
        job = room.create(gang(workers=1, ps=1, finish_seconds=30))
        room.start(job)
        turn = room.end(job, code=0)
        assert stopped(turn) == ["ps-0"]
        assert job.state is State.RUNNING
        assert turn.wake_at == room.machine.jobs[job.id].finish_at
        room.end(job, PS, code=None, signal=15, cause=Cause.STOPPED)
        assert stopped(room.tick(60)) == ["worker-0"]
        room.end(job, WORKER, code=None, signal=15, cause=Cause.STOPPED)
        assert job.state is State.SUCCEEDED

    def test_workers_that_end_in_time_are_not_stopped(self) -> None:
        room = ready()
        job = room.create(gang(workers=1))
        room.start(job)
        room.end(job)
        turn = room.end(job, WORKER)
        assert job.state is State.SUCCEEDED
        assert turn.wake_at is None

    def test_a_worker_that_fails_fails_the_job_and_ends_the_others(self) -> None:
        room = ready()
        job = room.create(gang(workers=1, ps=1))
        room.start(job)
        turn = room.end(job, WORKER, code=9)
        assert stopped(turn) == ["master-0", "ps-0"]
        assert job.state is State.STOPPING
        room.end(job, MASTER, code=0)
        room.end(job, PS, code=None, cause=Cause.STOPPED)
        assert (job.state, job.message) == (State.FAILED, "worker-0 exited with code 9")

    def test_a_worker_that_fails_after_the_lead_has_succeeded_does_not_matter(self) -> None:
        room = ready()
        job = room.create(gang(workers=1))
        room.start(job)
        room.end(job)
        room.end(job, WORKER, code=1)
        assert job.state is State.SUCCEEDED


class TestStop:
    def test_a_queued_job_ends_at_once(self) -> None:
        room = Room()
        job = room.create(gang())
        turn = room.stop(job)
        assert (job.state, job.message) == (State.STOPPED, "stopped by alice")
        assert turn.instructions == []

    def test_a_running_job_is_stopped_once_and_its_end_comes_as_a_report(self) -> None:
        room = ready()
        job = room.create(gang(workers=1, grace=7))
        room.start(job)
        turn = room.stop(job)
        assert turn.instructions == [StopGang("local", job.current, 7, (MASTER, WORKER))]
        assert room.stop(job).instructions == []
        room.end(job, WORKER, code=None, signal=15, cause=Cause.STOPPED)
        assert job.state is State.STOPPING
        room.end(job, code=None, signal=15, cause=Cause.STOPPED)
        assert (job.state, job.reason) == (State.STOPPED, Reason.STOPPED)

    def test_one_that_has_ended_cannot_be_stopped(self) -> None:
        room = ready()
        job = room.create(gang())
        room.start(job)
        room.end(job)
        assert isinstance(room.stop(job).answers[0], WrongState)

    def test_deleting_stops_frees_the_name_at_once_and_clears_away_at_the_end(self) -> None:
        room = ready()
        job = room.create(gang(), "same")
        room.start(job)
        assert room.delete(job).answers == [job]
        again = room.create(gang(), "same")
        assert again.id != job.id
        assert isinstance(room.delete(job).answers[0], NotFound)
        turn = room.end(job, code=None, signal=15, cause=Cause.STOPPED)
        assert Remove("local", (job.current,)) in turn.instructions

    def test_deleting_one_that_has_ended_clears_away_every_attempt(self) -> None:
        room = ready()
        job = room.create(gang())
        room.start(job)
        room.end(job)
        assert kinds(room.delete(job)) == [Remove]

    def test_deleting_one_that_ends_in_the_same_turn(self) -> None:
        room = ready()
        job = room.create(gang())
        room.start(job)
        end = EngineReport("local", Ended(job.current, MASTER, 6, Cause.EXIT, 0))
        turn = room.step(end, Delete(job.id, "alice", stored=None))
        assert turn.answers == [job]
        assert job.deleted
        assert Remove("local", (job.current,)) in turn.instructions


class TestRefusals:
    def test_a_name_that_is_taken(self) -> None:
        room = ready()
        room.create(gang(), "same")
        with pytest.raises(AlreadyExists, match="same"):
            room.create(gang(), "same")

    def test_the_same_name_twice_in_one_turn(self) -> None:
        room = ready()
        turn = room.step(room.creation(gang(), "same"), room.creation(gang(), "same"))
        assert isinstance(turn.answers[1], AlreadyExists)
        assert len(turn.batch.created) == 1

    def test_more_gpus_than_exist(self) -> None:
        room = ready(gpus=2)
        with pytest.raises(Unavailable, match="3 GPUs requested"):
            room.create(gang(gpus=3))


class TestRetry:
    def test_it_starts_over_as_often_as_it_may_and_only_for_the_right_reasons(self) -> None:
        room = ready()
        job = room.create(gang(retries=(Retry((Reason.NODE_LOST,), 1),)))
        room.start(job)
        turn = room.end(job, code=None, cause=Cause.LOST)
        assert job.attempt == 2
        assert [type(one) for one in turn.instructions] == [Forget, StartGang]
        room.start(job)
        room.end(job, code=None, cause=Cause.LOST)
        assert (job.state, job.reason) == (State.FAILED, Reason.NODE_LOST)

    def test_a_failure_of_the_program_is_not_retried_unless_it_says_so(self) -> None:
        room = ready()
        job = room.create(gang(retries=(Retry((Reason.NODE_LOST,), 1),)))
        room.start(job)
        room.end(job, code=1)
        assert job.state is State.FAILED


class TestPlaces:
    def test_gpus_are_given_to_one_job_at_a_time(self) -> None:
        room = ready(gpus=4)
        first = room.create(gang(gpus=1, workers=1))
        second = room.create(gang(gpus=2))
        allocations = [room.machine.jobs[job.id].placement for job in (first, second)]
        assert [allocation.gpus for allocation in allocations[0].values()] == [(0,), (1,)]
        assert [allocation.gpus for allocation in allocations[1].values()] == [(2, 3)]
        waiting = room.create(gang(gpus=1))
        assert waiting.state is State.QUEUED
        room.start(second)
        assert started(room.end(second)) == [waiting.id]
        assert room.machine.jobs[waiting.id].placement[MASTER].gpus == (2,)

    def test_a_gang_larger_than_the_machine_runs_alone_with_a_note(self) -> None:
        room = ready(cpu=4)
        big = room.create(gang(cpu=3, workers=2))
        assert big.state is State.PREPARING
        assert any("runs alone" in event.message for event in room.turns[-1].batch.events)
        small = room.create(gang())
        assert small.state is State.QUEUED
        room.start(big)
        for name in (ReplicaName("worker", 0), ReplicaName("worker", 1), MASTER):
            room.end(big, name)
        assert small.state is State.PREPARING

    def test_a_node_that_grows_lets_waiting_jobs_start(self) -> None:
        room = ready(cpu=1)
        room.create(gang())
        waiting = room.create(gang())
        turn = room.step(EngineReport("local", Capacity((Node("this", 2000, 16 * GIB, 0),))))
        assert started(turn) == [waiting.id]


class TestLost:
    """The engine does not hold an attempt any more, and may have it again later."""

    def test_what_comes_back_is_stopped_before_the_next_attempt_starts(self) -> None:
        room = ready()
        job = room.create(gang(retries=(Retry((Reason.NODE_LOST,), 1),)))
        first = job.current
        room.start(job)
        assert kinds(room.sync()) == [StopGang, Forget, StartGang]
        turn = room.sync(first)
        assert kinds(turn) == [StopGang, Forget, StartGang]
        assert started(turn) == [job.id]
        assert job.attempt == 2

    def test_a_gang_of_which_some_have_run_does_not_start_again(self) -> None:
        """The engine would not know how often each was restarted."""
        room = ready()
        job = room.create(gang(workers=1, in_place=Retry((Reason.PROGRAM_FAILED,), 3)))
        room.start(job, WORKER)
        room.end(job, WORKER, code=1)
        assert job.state is State.PREPARING
        assert kinds(room.sync()) == [StopGang, StopGang, Forget]
        assert (job.state, job.reason) == (State.FAILED, Reason.NODE_LOST)


class TestRecovery:
    """The service was killed and is back: the store says what was, the engine what is."""

    @staticmethod
    def after_crash(room: Room) -> Room:
        return Room(
            stored=[LiveRecord(x.job, x.spec, list(x.replicas.values())) for x in room.machine.jobs.values()],
        )

    def test_what_was_committed_but_not_sent_is_started(self) -> None:
        room = ready()
        job = room.create(gang())
        assert started(self.after_crash(room).sync()) == [job.id]

    def test_what_the_engine_holds_is_not_started_again(self) -> None:
        room = ready()
        job = room.create(gang())
        assert started(self.after_crash(room).sync(job.current)) == []

    def test_members_of_a_held_gang_that_never_started_are_asked_for_again(self) -> None:
        """The engine was killed while it started the gang."""
        room = ready()
        job = room.create(gang(workers=2))
        room.step(EngineReport("local", Started(job.current, MASTER, room.now, 5, "")))
        turn = self.after_crash(room).sync(job.current)
        again = [
            (str(one.replica), one.restarts) for one in turn.instructions if isinstance(one, RestartReplica)
        ]
        assert again == [("worker-0", 0), ("worker-1", 0)]
        assert started(turn) == []

    def test_what_ran_and_is_not_held_any_more_is_lost(self) -> None:
        room = ready()
        job = room.create(gang())
        room.start(job)
        self.after_crash(room).sync()
        assert (job.state, job.reason) == (State.FAILED, Reason.NODE_LOST)

    def test_a_stop_that_was_committed_but_not_sent_is_sent(self) -> None:
        room = ready()
        job = room.create(gang(workers=1))
        room.start(job)
        room.stop(job)
        assert stopped(self.after_crash(room).sync(job.current)) == ["master-0", "worker-0"]

    def test_a_job_stopped_before_it_began_never_begins(self) -> None:
        room = ready()
        job = room.create(gang())
        room.stop(job)
        turn = self.after_crash(room).sync()
        assert started(turn) == []
        assert job.state is State.STOPPED

    def test_the_outcome_that_was_certain_stands(self) -> None:
        room = ready()
        job = room.create(gang(workers=1, finish_seconds=30))
        room.start(job)
        room.end(job)
        back = self.after_crash(room)
        back.sync(job.current)
        assert stopped(back.tick(60)) == ["worker-0"]
        back.end(job, WORKER, code=None, signal=9, cause=Cause.STOPPED)
        assert job.state is State.SUCCEEDED

    def test_unknown_attempts_are_ended_and_forgotten(self) -> None:
        room = ready()
        job = room.create(gang())
        fresh = Room()
        assert kinds(fresh.sync(job.current)) == [StopGang, Forget]

    def test_places_and_devices_stay_taken(self) -> None:
        room = ready(gpus=2)
        job = room.create(gang(gpus=2))
        room.start(job)
        stored = [LiveRecord(x.job, x.spec, list(x.replicas.values())) for x in room.machine.jobs.values()]
        back = Room(gpus=2, stored=stored)
        back.ids = 10
        back.sync(job.current)
        assert back.create(gang(gpus=1)).state is State.QUEUED

    def test_a_failed_commit_is_undone_by_building_anew(self) -> None:
        room = ready()
        job = room.create(gang())
        before = LiveRecord(job, Spec(room.machine.jobs[job.id].spec.roles), [])
        fresh = Room(
            stored=[LiveRecord(before.job, before.spec, list(room.machine.jobs[job.id].replicas.values()))]
        )
        fresh.machine.inherit(room.machine)
        assert fresh.machine.ready == {"local"}
        assert fresh.machine.jobs[job.id].replicas[MASTER].state is ReplicaState.WAITING
        assert fresh.machine.pools["local"].free.millicores == 3000
