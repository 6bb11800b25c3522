"""What belongs to a job besides its row: labels, the document that may change, past attempts, samples."""

from collections.abc import Callable

import msgspec
import pytest

from tests.store.samples import creation, gang, job, new
from turnout.job import (
    All,
    Attempt,
    Compare,
    Job,
    Label,
    NewJob,
    Page,
    PastAttempt,
    Reason,
    ReplicaName,
    Sample,
)
from turnout.store import Batch, Store, StoreError

LABELS = {"kind": "job", "tag:owner": "训练"}


def labelled(one: Job, labels: dict[str, str]) -> tuple[Job, NewJob]:
    return one, msgspec.structs.replace(new(one)[1], labels=labels)


class TestLabels:
    async def test_come_with_the_create(self, store: Store):
        one, other = job("a"), job("b")
        await store.commit(Batch(created=[labelled(one, LABELS), new(other)]))
        assert await store.labels([one.id, other.id]) == {one.id: LABELS, other.id: {}}

    async def test_find_jobs(self, store: Store):
        one, other, bare = job("a"), job("b"), job("c")
        created = [labelled(one, LABELS), labelled(other, {"kind": "search"}), new(bare)]
        await store.commit(Batch(created=created))
        assert await store.find(Label("kind", "=", "job"), Page(9)) == [one]
        assert await store.find(Label("tag:owner", "=", None), Page(9)) == [bare, other]
        assert await store.find(All(Label("kind", "!=", "job"), Compare("name", "=", "b")), Page(9)) == [
            other
        ]
        assert await store.count(Label("kind", "in", ("job", "search"))) == 2

    async def test_are_replaced_as_a_whole(self, store: Store):
        one, other = job("a"), job("b")
        await store.commit(Batch(created=[labelled(one, LABELS), labelled(other, LABELS)]))
        await store.commit(Batch(labels=[(one.id, {"kind": "x"}), (one.id, {"kind": "y", "new": ""})]))
        assert await store.labels([one.id, other.id]) == {one.id: {"kind": "y", "new": ""}, other.id: LABELS}
        await store.commit(Batch(labels=[(one.id, {})]))
        assert await store.labels([one.id]) == {one.id: {}}

    async def test_may_change_in_the_batch_that_creates(self, store: Store):
        one = job("a")
        await store.commit(Batch(created=[labelled(one, LABELS)], labels=[(one.id, {"kind": "y"})]))
        assert await store.labels([one.id]) == {one.id: {"kind": "y"}}


async def test_a_document_can_be_replaced(store: Store):
    one = job("a")
    await store.commit(creation(one))
    await store.commit(Batch(documents=[(one.id, b"first"), (one.id, b"second \xff")]))
    assert await store.documents([one.id]) == {one.id: b"second \xff"}
    with pytest.raises(StoreError):
        await store.commit(Batch(documents=[(4711, b"nobody's")]))


async def test_past_attempts_keep_their_replicas_and_their_end(store: Store):
    one = job("a")
    one.attempt = 2
    batch = creation(one)
    batch.attempts = [*gang(one, 1), *gang(one, 2)]
    batch.past = [
        PastAttempt(one.id, 2, None, 10**18, Reason.PREEMPTED, ""),
        PastAttempt(one.id, 1, 10**17, 10**18, Reason.NODE_LOST, "gone \udcff", "worker-1"),
    ]
    await store.commit(batch)
    first, second = await store.past(one.id)
    assert first == PastAttempt(one.id, 1, 10**17, 10**18, Reason.NODE_LOST, "gone ?", "worker-1")
    assert second == batch.past[0]
    assert await store.gang(Attempt(one.id, 1)) == gang(one, 1)
    assert await store.gang(Attempt(one.id, 3)) == []
    assert await store.past(4711) == []


async def test_samples_come_by_time_and_once(store: Store):
    master, worker = ReplicaName("master", 0), ReplicaName("worker", 1)
    first, second = Attempt(7, 1), Attempt(7, 2)
    early, late = Sample(master, 1, 12.5, 50.0), Sample(master, 2, 100.0, 0.0, 99.9, 1.0)
    again = Sample(master, 3, 0.0)
    await store.commit(Batch(samples=[(second, again), (first, late), (first, early)]))
    await store.commit(Batch(samples=[(first, late), (first, Sample(worker, 1)), (Attempt(8, 1), early)]))
    assert await store.samples(7, master) == [early, late, again]
    assert await store.samples(7, worker) == [Sample(worker, 1)]
    assert await store.samples(7, ReplicaName("worker", 0)) == []


@pytest.mark.parametrize(
    "batch",
    [
        Batch(documents=[(1, b"")]),
        Batch(labels=[(1, {})]),
        Batch(past=[PastAttempt(1, 1, None, 1, Reason.HUNG, "")]),
        Batch(samples=[(Attempt(1, 1), Sample(ReplicaName("master", 0), 1))]),
    ],
)
def test_a_batch_of_anything_is_not_empty(batch: Batch):
    assert batch
    assert not Batch()


async def test_all_of_it_is_there_after_a_restart(opening: Callable[[], Store]):
    one = job("a")
    store = opening()
    await store.commit(Batch(created=[labelled(one, LABELS)]))
    await store.close()
    store = opening()
    assert await store.labels([one.id]) == {one.id: LABELS}
    await store.close()
