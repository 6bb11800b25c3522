"""What every store does, on SQLite and on PostgreSQL."""

import asyncio
import copy
from collections.abc import Callable

import pytest

from tests.store.samples import SPEC, creation, gang, job, new
from turnout.errors import NotFound
from turnout.job import (
    All,
    Attempt,
    Compare,
    Event,
    EventKind,
    Job,
    Not,
    Page,
    Program,
    Query,
    Reason,
    Replica,
    ReplicaState,
    Role,
    Spec,
    State,
)
from turnout.store import Batch, Store, StoreError


async def test_an_empty_store_has_nothing(store: Store):
    assert await store.last_id() == 0
    assert await store.live() == []
    assert await store.find(All(), Page(10)) == []
    assert await store.count(All()) == 0
    assert await store.job(1) is None
    assert await store.events(1) == []
    assert await store.documents([1, 2]) == {}
    with pytest.raises(NotFound):
        await store.spec(1)


async def test_a_created_job_comes_back_as_it_was(store: Store):
    one = job("mnist-训练")
    spec = Spec(roles=(Role("master", Program(("echo", "\x00\u2028ü")), leads=True),), debug=True)
    document = b'{"Name": "mnist", "bytes": "\xff\x00"}'
    await store.commit(Batch(created=[new(one, document, spec)]))
    assert await store.job(one.id) == one
    assert await store.by_handle(one.project, one.scope, one.handle) == one
    assert await store.documents([one.id]) == {one.id: document}
    assert await store.spec(one.id) == spec
    assert await store.last_id() == one.id


async def test_every_field_of_a_job_can_change_but_who_it_is(store: Store):
    one = job("a")
    await store.commit(creation(one))
    one.state, one.priority, one.updated, one.attempt = State.FAILED, -3, 10**18 + 1, 4
    one.started, one.ended, one.deleted = 10**18 + 2, 10**18 + 3, 10**18 + 4
    one.reason, one.message = Reason.OUT_OF_MEMORY, "master-0 took more than 2 GiB"
    await store.commit(Batch(jobs=[one]))
    assert await store.job(one.id) == one


async def test_what_the_caller_changes_after_handing_it_in_is_not_written(store: Store):
    one = job("a")
    batch = creation(one)
    committing = asyncio.ensure_future(store.commit(batch))
    await asyncio.sleep(0)
    before, one.message = copy.copy(one), "changed meanwhile"
    await committing
    assert await store.job(one.id) == before


async def test_all_of_a_batch_or_nothing(store: Store):
    first, second = job("a"), job("b")
    await store.commit(creation(first))
    first.state = State.RUNNING
    unknown = job("never created")
    batch = creation(second)
    batch.jobs, batch.replicas = [first], [Replica(unknown.id, 1, "master", 0)]
    with pytest.raises(StoreError):
        await store.commit(batch)
    assert await store.job(second.id) is None
    assert await store.events(second.id) == []
    assert (await store.live())[0].job.state is State.QUEUED
    await store.commit(creation(second))
    assert await store.job(second.id) == second


async def test_a_change_of_a_job_that_is_not_there_is_an_error(store: Store):
    with pytest.raises(StoreError):
        await store.commit(Batch(jobs=[job("a")]))


@pytest.mark.parametrize("name", ["\ud800", "\udcffabc"])
async def test_a_name_that_no_database_holds_does_not_get_in(store: Store, name: str):
    """Dialects refuse it before; here it must not do harm."""
    with pytest.raises(StoreError):
        await store.commit(creation(job("a"), job(name)))
    assert await store.count(All()) == 0
    await store.commit(creation(job("a")))


async def test_a_large_batch(store: Store):
    jobs = [job(f"job-{number}") for number in range(700)]
    await store.commit(creation(*jobs))
    assert await store.count(All()) == 700
    for one in jobs:
        one.state = State.SUCCEEDED
    await store.commit(Batch(jobs=jobs))
    assert await store.live() == []
    assert len(await store.documents([one.id for one in jobs])) == 700


class TestHandles:
    async def test_name_a_job_until_it_is_deleted(self, store: Store):
        first = job("mnist")
        await store.commit(creation(first))
        free = ("default", "tia:ap-beijing", "cifar")
        assert await store.taken([(first.project, first.scope, "mnist"), free]) == {
            (first.project, first.scope, "mnist")
        }
        first.state, first.deleted = State.STOPPED, 10**18 + 5
        await store.commit(Batch(jobs=[first]))
        assert await store.by_handle("default", "tia:ap-beijing", "mnist") is None
        assert await store.taken([("default", "tia:ap-beijing", "mnist")]) == set()
        second = job("mnist")
        await store.commit(creation(second))
        assert await store.by_handle("default", "tia:ap-beijing", "mnist") == second
        assert await store.job(first.id) == first

    async def test_belong_to_a_project_and_a_scope(self, store: Store):
        jobs = [job("a"), job("a", project="other"), job("a", scope="tia:ap-shanghai")]
        await store.commit(creation(*jobs))
        for one in jobs:
            assert await store.by_handle(one.project, one.scope, "a") == one

    async def test_cannot_be_given_twice(self, store: Store):
        await store.commit(creation(job("a")))
        with pytest.raises(StoreError):
            await store.commit(creation(job("b"), job("a")))
        assert await store.count(All()) == 1

    async def test_may_be_missing(self, store: Store):
        await store.commit(creation(job(""), job("")))
        assert await store.count(All()) == 2
        assert await store.taken([("default", "tia:ap-beijing", "")]) == set()

    async def test_that_no_row_can_hold_name_nothing(self, store: Store):
        for handle in ("\0", "a\0b", "\ud800"):
            assert await store.by_handle("default", "tia:ap-beijing", handle) is None
        assert await store.job(1 << 64) is None


class TestReplicas:
    async def test_are_those_of_the_current_attempt_in_the_order_of_the_gang(self, store: Store):
        one, other = job("a"), job("b")
        await store.commit(creation(one, other))
        for number in (1, 2):
            one.attempt = number
            await store.commit(Batch(jobs=[one], attempts=gang(one, number)))
        await store.commit(Batch(attempts=[*gang(other)]))
        other.attempt = 1
        await store.commit(Batch(jobs=[other]))
        assert await store.replicas([one, other]) == {one.id: gang(one, 2), other.id: gang(other, 1)}

    async def test_change(self, store: Store):
        one = job("a")
        one.attempt = 1
        batch = creation(one)
        batch.attempts = members = gang(one)
        await store.commit(batch)
        members[2] = Replica(
            job=one.id,
            attempt=1,
            role="worker",
            index=1,
            state=ReplicaState.FAILED,
            node="local",
            address="127.1.2.3",
            pid=1 << 22,
            gpus="0,1",
            started=10**18,
            ended=10**18 + 1,
            exit_code=255,
            signal=9,
            message="killed",
        )
        await store.commit(Batch(replicas=[members[2]]))
        assert (await store.replicas([one]))[one.id] == members

    async def test_of_a_job_that_waits_are_none(self, store: Store):
        one = job("a")
        await store.commit(creation(one))
        assert await store.replicas([one]) == {one.id: []}


async def test_live_jobs_come_oldest_first_with_all_that_control_needs(store: Store):
    jobs = [job(f"job-{number}") for number in range(8)]
    states = [*State, State.QUEUED]
    for one, state in zip(jobs, states, strict=True):
        one.state, one.attempt = state, 2
    batch = creation(*jobs)
    batch.attempts = [replica for one in jobs for number in (1, 2) for replica in gang(one, number)]
    await store.commit(batch)
    live = await store.live()
    assert [one.job for one in live] == [one for one in jobs if one.live]
    assert all(one.spec == SPEC and one.replicas == gang(one.job, 2) for one in live)


async def test_a_deleted_job_that_still_runs_is_live(store: Store):
    one = job("a")
    one.state, one.deleted = State.STOPPING, 10**18
    await store.commit(creation(one))
    assert [found.job for found in await store.live()] == [one]


@pytest.mark.parametrize("number", [3, 250])
async def test_events_keep_their_order(store: Store, number: int):
    one, other = job("a"), job("b")
    events = [Event(one.id, 10**18 - count % 2, EventKind.NOTE, f"note {count}") for count in range(number)]
    for event in events:
        await store.commit(Batch(events=[event, Event(other.id, 1, EventKind.ENDED, "")]))
    assert await store.events(one.id) == events


async def test_messages_quote_what_no_database_holds(store: Store):
    one = job("a")
    one.attempt = 1
    batch = creation(one)
    batch.attempts = [Replica(one.id, 1, "master", 0, message="no such file: \udcff")]
    batch.events = [Event(one.id, 1, EventKind.ENDED, "it said \0")]
    one.message = "\ud800\0 训练"
    await store.commit(batch)
    assert (await store.job(one.id) or one).message == "?\N{REPLACEMENT CHARACTER} 训练"
    assert (await store.replicas([one]))[one.id][0].message == "no such file: ?"
    assert (await store.events(one.id))[0].message == "it said \N{REPLACEMENT CHARACTER}"


MINE = All(
    Compare("project", "=", "default"), Compare("scope", "=", "tia:ap-beijing"), Compare("deleted", "=", None)
)


class TestLists:
    @pytest.fixture
    async def jobs(self, store: Store) -> list[Job]:
        """Newest first."""
        jobs = [job(f"job-{number}") for number in range(30)]
        await store.commit(creation(*jobs, job("x", project="other"), job("x", scope="modelarts:0")))
        return jobs[::-1]

    async def test_come_newest_first(self, store: Store, jobs: list[Job]):
        assert await store.find(MINE, Page(10)) == jobs[:10]
        assert await store.find(MINE, Page(100)) == jobs
        assert await store.find(MINE, Page(0)) == []

    async def test_go_on_by_number_or_where_the_last_ended(self, store: Store, jobs: list[Job]):
        assert await store.find(MINE, Page(10, offset=10)) == jobs[10:20]
        assert await store.find(MINE, Page(10, before_id=jobs[9].id)) == jobs[10:20]
        assert await store.find(MINE, Page(10, offset=95)) == []
        assert await store.find(MINE, Page(1 << 70, offset=1 << 70)) == []
        assert await store.find(MINE, Page(1, before_id=1 << 70)) == jobs[:1]

    async def test_can_be_turned_around(self, store: Store, jobs: list[Job]):
        assert await store.find(MINE, Page(5, descending=False)) == jobs[::-1][:5]

    async def test_can_have_another_order(self, store: Store, jobs: list[Job]):
        jobs[3].ended, jobs[4].ended = 10**18 + 1, 10**18 + 1
        jobs[5].ended = 10**18 + 2
        await store.commit(Batch(jobs=jobs[3:6]))
        found = await store.find(MINE, Page(4, order_by="ended"))
        assert found == [jobs[5], jobs[3], jobs[4], jobs[0]]
        found = await store.find(MINE, Page(1, order_by="ended", descending=False))
        assert found == jobs[-1:]

    @pytest.mark.parametrize(
        ("query", "count"),
        [
            (MINE, 30),
            (All(), 32),
            (All(MINE, Compare("name", "contains", "job-1")), 11),
            (All(MINE, Compare("state", "in", (State.QUEUED, State.RUNNING))), 30),
            (All(MINE, Compare("state", "=", State.FAILED)), 0),
            (Not(MINE), 2),
        ],
    )
    async def test_are_counted(self, store: Store, jobs: list[Job], query: Query, count: int):
        assert await store.count(query) == count
        assert len(await store.find(query, Page(100))) == count

    async def test_do_not_show_the_deleted(self, store: Store, jobs: list[Job]):
        jobs[0].deleted = 10**18
        await store.commit(Batch(jobs=[jobs[0]]))
        assert await store.find(MINE, Page(1)) == [jobs[1]]
        assert await store.find(Compare("deleted", "!=", None), Page(9)) == [jobs[0]]


async def test_attempts_of_ended_deleted_and_unknown_jobs_are_found(store: Store):
    _runs, ended, long_ended, deleted, deleted_but_runs = jobs = [job(f"job-{number}") for number in range(5)]
    for one in (ended, long_ended, deleted):
        one.state, one.ended = State.SUCCEEDED, 10**18 + 100
    long_ended.ended = 10**18
    deleted.deleted = deleted_but_runs.deleted = 10**18 + 101
    await store.commit(creation(*jobs))
    unknown = Attempt(4711, 1)
    attempts = [Attempt(one.id, number) for one in jobs for number in (1, 2)]
    gone = await store.finished_attempts([unknown, *attempts], before=10**18 + 1)
    assert gone == [unknown, *(attempt for attempt in attempts if attempt.job in (long_ended.id, deleted.id))]
    assert await store.finished_attempts([], before=10**18) == []


async def test_everything_is_there_after_a_restart(opening: Callable[[], Store]):
    one = job("a")
    store = opening()
    await store.commit(creation(one))
    await store.close()
    store = opening()
    assert await store.job(one.id) == one
    assert await store.last_id() == one.id
    await store.commit(creation(job("b")))
    await store.close()


async def test_reading_goes_on_while_it_is_written(store: Store):
    """Every reader sees whole batches only."""
    done = asyncio.Event()

    async def write() -> None:
        for number in range(40):
            await store.commit(creation(*(job(f"job-{number}-{index}") for index in range(5))))
            await asyncio.sleep(0)
        done.set()

    async def read() -> list[int]:
        seen = [await store.count(All())]
        while not done.is_set():
            seen.append(await store.count(All()))
        return seen

    _, *seen = await asyncio.gather(write(), read(), read(), read())
    for counts in seen:
        assert counts == sorted(counts)
        assert all(count % 5 == 0 for count in counts)
