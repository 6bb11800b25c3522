"""Random histories: stored facts stay true, and every job ends."""

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.control.stepping import Room, gang
from turnout.control.turn import Amend, Delete, EngineReport, Forget, StartGang, StopGang
from turnout.errors import Unavailable
from turnout.job import (
    Attempt,
    Capacity,
    Cause,
    Ended,
    EventKind,
    Hung,
    Job,
    PastAttempt,
    Reason,
    Replica,
    ReplicaState,
    Retry,
    Spec,
    Started,
    State,
    Synced,
)
from turnout.store import LiveRecord

CPUS, GPUS = 4, 2
SPECS = st.builds(
    gang,
    cpu=st.integers(1, 5),
    gpus=st.integers(0, 2),
    workers=st.integers(0, 1),
    priority=st.integers(0, 2),
    preemptible=st.booleans(),
    max_wait=st.sampled_from([None, 50]),
    retries=st.sampled_from(
        [(), (Retry((Reason.NODE_LOST,), 1),), (Retry((Reason.HUNG, Reason.PROGRAM_FAILED), 2),)]
    ),
)
ENDS = st.sampled_from([(Cause.EXIT, 0), (Cause.EXIT, 0), (Cause.EXIT, 3), (Cause.LOST, None)])


class Lives(RuleBasedStateMachine):
    """A machine, an engine that obeys when it is allowed to, and a store made of the rows of all batches."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, Job] = {}
        self.specs: dict[int, Spec] = {}
        self.replicas: dict[Attempt, dict[str, Replica]] = {}
        self.past: dict[int, list[PastAttempt]] = {}
        self.preempted: dict[int, int] = {}
        self.held: dict[Attempt, set[str]] = {}
        self.to_stop: list[tuple[Attempt, str]] = []
        self.free = Room(cpu=CPUS, gpus=GPUS)
        self.take_in(0)
        self.step(EngineReport("local", Synced(frozenset())))

    def step(self, *inputs: object, seconds: float = 1) -> None:
        seen = len(self.free.turns)
        self.free.step(*inputs, seconds=seconds)  # type: ignore[arg-type]
        self.take_in(seen)

    def take_in(self, seen: int) -> None:
        for turn in self.free.turns[seen:]:
            batch = turn.batch
            for job, new in batch.created:
                self.jobs[job.id], self.specs[job.id] = copy.copy(job), new.spec
            self.jobs |= {job.id: copy.copy(job) for job in batch.jobs}
            for one in [*batch.attempts, *batch.replicas]:
                self.replicas.setdefault(Attempt(one.job, one.attempt), {})[str(one.name)] = copy.copy(one)
            for one in batch.past:
                self.past.setdefault(one.job, []).append(one)
            for event in batch.events:
                if event.kind is EventKind.PREEMPTED:
                    self.preempted[event.job] = self.preempted.get(event.job, 0) + 1
                    assert self.jobs[event.job].priority < int(event.message.rpartition(" ")[2])
            for asked in turn.instructions:
                self.carry_out(asked)

    def carry_out(self, asked: object) -> None:
        match asked:
            case StartGang(_, launch):
                self.held[launch.attempt] = {str(name) for name, _ in launch.replicas()}
            case StopGang(_, attempt, _, names):
                self.to_stop += [(attempt, str(name)) for name in names]
            case Forget(_, attempt):
                assert not self.held.pop(attempt, set()), "nothing runs of what is forgotten"
            case _:
                pass

    def live(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.live]

    def running(self) -> list[tuple[Attempt, str]]:
        return [(attempt, name) for attempt, names in sorted(self.held.items()) for name in sorted(names)]

    def end(self, attempt: Attempt, name: str, cause: Cause, code: int | None) -> None:
        self.held[attempt].discard(name)
        self.to_stop = [one for one in self.to_stop if one != (attempt, name)]
        replica = self.replicas[attempt][name].name
        self.step(EngineReport("local", Ended(attempt, replica, self.free.now, cause, code)))

    @rule(spec=SPECS)
    def create(self, spec: Spec) -> None:
        self.step(self.free.creation(spec))
        answer = self.free.turns[-1].answers[0]
        assert isinstance(answer, Job) or (isinstance(answer, Unavailable) and spec.share.gpus > GPUS)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def one_starts(self, data: st.DataObject) -> None:
        attempt, name = data.draw(st.sampled_from(self.running()))
        replica = self.replicas[attempt][name].name
        self.step(EngineReport("local", Started(attempt, replica, self.free.now, 9, "127.0.0.9")))

    @precondition(lambda self: self.running())
    @rule(data=st.data(), end=ENDS)
    def one_ends_by_itself(self, data: st.DataObject, end: tuple[Cause, int | None]) -> None:
        self.end(*data.draw(st.sampled_from(self.running())), *end)

    @precondition(lambda self: self.to_stop)
    @rule()
    def one_is_stopped(self) -> None:
        attempt, name = self.to_stop.pop(0)
        if name in self.held.get(attempt, ()):
            self.end(attempt, name, Cause.STOPPED, None)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def a_gang_hangs(self, data: st.DataObject) -> None:
        attempt, _ = data.draw(st.sampled_from(self.running()))
        self.step(EngineReport("local", Hung(attempt, self.free.now, "")))

    @precondition(lambda self: self.live())
    @rule(data=st.data(), priority=st.integers(0, 3))
    def amend(self, data: st.DataObject, priority: int) -> None:
        job = data.draw(st.sampled_from(self.live()))
        self.step(Amend(job.id, "alice", None, priority=priority))

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.live()))
        self.step(Delete(job.id, "alice", None))

    @rule(seconds=st.sampled_from([1, 60, 2000]))
    def time_passes(self, seconds: int) -> None:
        self.step(seconds=seconds)

    @rule()
    def the_service_is_killed(self) -> None:
        stored = [
            LiveRecord(copy.copy(job), self.specs[job.id], self.gang(job), tuple(self.past.get(job.id, ())))
            for job in self.live()
        ]
        after = Room(cpu=CPUS, gpus=GPUS, stored=stored, now=self.free.now)
        after.ids = self.free.ids
        self.free = after
        self.to_stop = []
        self.step(
            EngineReport("local", Capacity(after.nodes)), EngineReport("local", Synced(frozenset(self.held)))
        )

    def gang(self, job: Job) -> list[Replica]:
        return [copy.copy(one) for one in self.replicas.get(job.current, {}).values()]

    @invariant()
    def the_record_is_what_the_machine_knows(self) -> None:
        assert {job.id: job for job in self.live()} == {
            job_id: live.job for job_id, live in self.free.machine.jobs.items()
        }

    @invariant()
    def seats_add_up_and_nothing_is_given_twice(self) -> None:
        machine = self.free.machine
        allocations = [
            allocation for live in machine.placed.values() for allocation in live.placement.values()
        ]
        taken = sum((allocation.share for allocation in allocations), machine.pools["local"].free)
        assert taken == machine.pools["local"].total
        devices = [gpu for allocation in allocations for gpu in allocation.gpus]
        assert len(devices) == len(set(devices))

    @invariant()
    def a_job_waits_or_has_a_place(self) -> None:
        machine = self.free.machine
        for job_id, live in machine.jobs.items():
            waits = live.job.state is State.QUEUED
            assert (job_id in machine.queues["local"]) is waits
            assert (job_id in machine.placed) is not waits

    @invariant()
    def every_attempt_but_the_last_is_told_of_and_allowed(self) -> None:
        for job in self.jobs.values():
            policy, past = self.specs[job.id].policy, self.past.get(job.id, [])
            assert [one.attempt for one in past] == list(range(1, len(past) + 1))
            assert job.attempt - len(past) in (0, 1)
            assert job.attempt > len(past) or job.state not in (State.PREPARING, State.RUNNING)
            counted = [one for one in past if one.reason is not Reason.PREEMPTED]
            assert len(counted) <= sum(rule.times for rule in policy.retries)
            assert len(past) - len(counted) <= self.preempted.get(job.id, 0)
            assert policy.preemptible or not self.preempted.get(job.id)

    @invariant()
    def nobody_overstays(self) -> None:
        for live in self.free.machine.jobs.values():
            if live.job.state is State.QUEUED and live.gives_up_at is not None:
                assert live.gives_up_at > self.free.steady
                assert (self.free.turns[-1].wake_at or 0) <= live.gives_up_at

    @invariant()
    def the_head_waits_only_if_it_does_not_fit(self) -> None:
        machine = self.free.machine
        for waiting in list(machine.queues["local"])[:1]:
            live = machine.jobs[waiting.job_id]
            assert machine.pools["local"].place(live.next_launch(), live.parts) is None

    def teardown(self) -> None:
        for _ in range(1000):
            if not self.live():
                break
            self.one_is_stopped() if self.to_stop else self.end(*self.running()[0], Cause.EXIT, 0)
        assert self.live() == []
        pool = self.free.machine.pools["local"]
        assert pool.free == pool.total
        assert all(
            one.state is not ReplicaState.WAITING for gang in self.replicas.values() for one in gang.values()
        )


Lives.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLives = Lives.TestCase
