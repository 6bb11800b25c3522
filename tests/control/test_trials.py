"""What the machine makes of searches: no gang of their own, and an end only when all their trials are over."""

from tests.control.stepping import Room, events, gang, ready, reloaded, started, stopped
from turnout.control.turn import (
    Create,
    Delete,
    FinishSearch,
    FinishTrial,
    Forget,
    Remove,
    Stop,
    StopTrial,
    Turn,
)
from turnout.errors import AlreadyExists, TurnoutError, WrongState
from turnout.job import (
    Cause,
    EventKind,
    Job,
    NewJob,
    Reason,
    ReplicaName,
    Retry,
    Search,
    Spec,
    State,
    Trial,
    TrialState,
)
from turnout.job.search import Algorithm, Metric, Parameter
from turnout.store import LiveRecord

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
    end = FinishTrial(search.id, number, TrialState.SUCCEEDED, 1, room.now, 0.5, {"y": 0.5}, best=best)
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
    turn = room.step(FinishSearch(search.id, State.SUCCEEDED, Reason.SUCCEEDED, "the best"))
    assert (search.state, search.message) == (State.SUCCEEDED, "the best")
    assert events(turn, EventKind.ENDED) == ["the best"]


def test_a_number_is_given_once():
    room = ready()
    search = room.create(searching())
    first = begun(room, search)
    room.ids += 1
    again = NewJob("p", "tia", f"trial:{search.id}", "other", "other", "here", gang(), b"{}")
    assert isinstance(room.step(trial_of(room, search, 0, again)).answers[0], AlreadyExists)
    assert not room.turns[-1].batch.created
    assert room.machine.searches[search.id].trials[0].child == first.id


def test_a_trial_that_begins_while_its_search_is_deleted_goes_with_it():
    room = ready(cpu=1)
    search = room.create(searching())
    first = begun(room, search)
    room.ids += 1
    new = NewJob("p", "tia", f"trial:{search.id}", "1", "1", "here", gang(), b"{}")
    turn = room.step(trial_of(room, search, 1, new), Delete(search.id, "alice", None, trials=(first,)))
    second = turn.answers[0]
    assert isinstance(second, Job)
    assert [bool(one.deleted) for one in (search, first, second)] == [True] * 3
    assert (second.state, stopped(turn)) == (State.STOPPED, ["master-0"])
    assert events(turn, EventKind.DELETED) == ["deleted by alice"] * 3
    conclude(room, search, 1)
    removed = room.end(first, code=None, signal=15).instructions
    assert [one.attempts for one in removed if isinstance(one, Remove)] == [(first.current,)]
    conclude(room, search, 0)
    assert (search.state, room.machine.jobs, room.machine.trials) == (State.STOPPED, {}, {})


def test_a_trial_that_begins_while_its_search_is_stopped_ends_with_it():
    room = ready(cpu=1)
    search = room.create(searching())
    room.ids += 1
    new = NewJob("p", "tia", f"trial:{search.id}", "0", "0", "here", gang(), b"{}")
    job, _ = room.step(trial_of(room, search, 0, new), Stop(search.id, "alice")).answers
    assert isinstance(job, Job)
    assert (job.state, job.deleted, search.state) == (State.STOPPED, None, State.STOPPING)
    conclude(room, search)
    assert search.state is State.STOPPED


def test_a_trial_can_be_stopped_twice_and_after_its_end_but_not_when_that_is_known():
    room = ready()
    search = room.create(searching())
    job = begun(room, search)
    stop = StopTrial(search.id, 0, "stopped by alice")
    assert stopped(room.step(stop)) == ["master-0"]
    assert (room.step(stop).instructions, room.turns[-1].answers) == ([], [search])
    room.end(job, code=None, signal=15, cause=Cause.STOPPED)
    assert room.step(stop).answers == [search]
    assert (job.state, search.live) == (State.STOPPED, True)
    conclude(room, search)
    assert isinstance(room.step(stop).answers[0], WrongState)


def test_a_trial_that_is_stopped_does_not_start_over():
    room = ready()
    search = room.create(searching())
    room.ids += 1
    again = gang(retries=(Retry((Reason.PROGRAM_FAILED,), 3),), workers=1)
    new = NewJob("p", "tia", f"trial:{search.id}", "0", "0", "here", again, b"{}")
    job = room.step(trial_of(room, search, 0, new)).answers[0]
    assert isinstance(job, Job)
    room.start(job)
    room.end(job, code=1)
    room.step(StopTrial(search.id, 0, "stopped by alice"))
    room.end(job, ReplicaName("worker", 0), code=None, signal=15, cause=Cause.STOPPED)
    assert (job.state, job.message) == (State.STOPPED, "stopped by alice")


def test_a_trial_that_starts_over_or_is_preempted_goes_on_as_the_same_trial():
    room = ready(cpu=1)
    search = room.create(searching())
    room.ids += 1
    spec = gang(preemptible=True)
    new = NewJob("p", "tia", f"trial:{search.id}", "0", "0", "here", spec, b"{}")
    job = room.step(trial_of(room, search, 0, new)).answers[0]
    assert isinstance(job, Job)
    room.start(job)
    urgent = room.create(gang(priority=9))
    turn = room.end(job, code=None, signal=15, cause=Cause.STOPPED)
    assert (job.state, search.state, started(turn)) == (State.QUEUED, State.RUNNING, [urgent.id])
    (trial,) = room.machine.searches[search.id].trials.values()
    assert (trial.state, trial.child) == (TrialState.ACTIVE, job.id)
    room.start(urgent)
    assert started(room.end(urgent)) == [job.id]
    began = trial.started
    room.start(job)
    assert (trial.started, search.started) == (began, began)


def test_stopping_a_trial_keeps_the_best_one():
    room = ready()
    search = room.create(searching())
    for number in range(2):
        room.end(begun(room, search, number))
    conclude(room, search, 0, best="the best")
    room.step(FinishSearch(search.id, State.FAILED, Reason.REFUSED, "no pool"))
    conclude(room, search, 1, best="")
    assert search.message == "no pool; the best"


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
    stored = LiveRecord(search, searching(), [], (), tuple(room.machine.searches[search.id].trials.values()))
    after = Room(stored=[stored])
    after.sync(job.current)
    assert after.turns[-1].instructions == [], "what it wrote is not given up"
    conclude(after, search)
    after.step(FinishSearch(search.id, State.SUCCEEDED, Reason.SUCCEEDED, "the best"))
    assert search.state is State.SUCCEEDED


def test_a_reloaded_machine_holds_searches_too():
    room = ready()
    room.create(searching())
    assert list(reloaded(room).machine.searches) == [1]
