"""What the machine makes of searches: no gang of their own, and an end only when all their trials are over."""

from tests.control.machine_room import Room, events, gang, ready, reloaded, started, stopped
from turnout.control.turn import Conclude, Create, Finish, Forget, Turn
from turnout.errors import TurnoutError, WrongState
from turnout.job import EventKind, Job, NewJob, Reason, Search, Spec, State, Trial, TrialState
from turnout.job.search import Algorithm, Metric, Parameter
from turnout.store import LiveJob

SEARCH = Search((Parameter("x", "float", 0, 1),), (Metric("y"),), (Algorithm("random"),))


def searching(**policy: object) -> Spec:
    spec = gang(**policy)  # type: ignore[arg-type]
    return Spec(spec.roles, policy=spec.policy, search=SEARCH)


def trial(room: Room, search: Job, number: int = 0) -> Job | TurnoutError:
    room.ids += 1
    new = NewJob("p", "tia", f"trial:{search.id}", str(number), str(number), "here", gang(), b"{}")
    return room.step(trial_of(room, search, number, new)).answers[0]


def trial_of(room: Room, search: Job, number: int, new: NewJob) -> Create:
    return Create(
        room.ids, new, taken=False, trial=Trial(search.id, number, f"{number:08x}", 0, {"x": 1}, 0, 0)
    )


def begun(room: Room, search: Job, number: int = 0) -> Job:
    job = trial(room, search, number)
    assert isinstance(job, Job)
    room.start(job)
    return job


def conclude(room: Room, search: Job, number: int = 0, best: str = "the best") -> Turn:
    end = Conclude(search.id, number, TrialState.SUCCEEDED, 1, room.now, 0.5, {"y": 0.5}, best=best)
    return room.step(end)


def test_a_search_starts_nothing_and_runs_from_its_first_trial_on():
    room = ready()
    turn = room.step(room.creation(searching()))
    search = turn.answers[0]
    assert isinstance(search, Job)
    assert (started(turn), search.state) == ([], State.QUEUED)
    job = begun(room, search)
    assert (search.state, search.started, search.attempt) == (State.RUNNING, job.started, 0)
    assert [one.state for one in room.turns[-1].batch.trials] == [TrialState.ACTIVE]


def test_a_trial_is_begun_with_its_job_in_one_batch():
    room = ready()
    search = room.create(searching())
    job = trial(room, search)
    assert isinstance(job, Job)
    batch = room.turns[-1].batch
    assert [(one.child, one.number) for one in batch.new_trials] == [(job.id, 0)]
    assert [one.id for one, _ in batch.created] == [job.id]


def test_what_a_trial_wrote_is_kept_until_it_is_known_how_it_did():
    room = ready()
    search = room.create(searching())
    job = begun(room, search)
    assert Forget not in [type(one) for one in room.end(job).instructions]
    assert room.sync(job.current).instructions == []
    turn = conclude(room, search)
    assert [one.attempt for one in turn.instructions if isinstance(one, Forget)] == [job.current]
    assert search.message == "the best"


def test_a_search_that_is_stopped_ends_when_its_last_trial_is_over():
    room = ready()
    search = room.create(searching())
    first, second = begun(room, search, 0), begun(room, search, 1)
    turn = room.stop(search)
    assert (search.state, stopped(turn)) == (State.STOPPING, ["master-0", "master-0"])
    assert isinstance(trial(room, search, 2), WrongState)
    for number, job in enumerate((first, second)):
        room.end(job, code=None, signal=15)
        assert search.live
        conclude(room, search, number)
    assert (search.state, search.message) == (State.STOPPED, "stopped by alice; the best")


def test_a_search_that_is_done_says_so():
    room = ready()
    search = room.create(searching())
    room.end(begun(room, search))
    conclude(room, search)
    turn = room.step(Finish(search.id, State.SUCCEEDED, Reason.SUCCEEDED, "the best"))
    assert (search.state, search.message) == (State.SUCCEEDED, "the best")
    assert events(turn, EventKind.ENDED) == ["the best"]


def test_the_time_limit_of_a_search_ends_its_trials():
    room = ready()
    search = room.create(searching(time_limit=10))
    job = begun(room, search)
    assert room.turns[-1].wake_at == (job.started or 0) + 10_000_000_000
    turn = room.tick(11)
    assert stopped(turn) == ["master-0"]
    assert (search.state, search.reason) == (State.STOPPING, Reason.TIME_LIMIT)


def test_the_next_service_knows_the_trials_that_are_not_over():
    room = ready()
    search = room.create(searching())
    job = begun(room, search)
    room.end(job)
    stored = LiveJob(search, searching(), [], (), tuple(room.machine.searches[search.id].trials.values()))
    after = Room(stored=[stored])
    after.sync(job.current)
    assert after.turns[-1].instructions == [], "what it wrote is not given up"
    conclude(after, search)
    after.step(Finish(search.id, State.SUCCEEDED, Reason.SUCCEEDED, "the best"))
    assert search.state is State.SUCCEEDED


def test_a_reloaded_machine_holds_searches_too():
    room = ready()
    room.create(searching())
    assert list(reloaded(room).machine.searches) == [1]
