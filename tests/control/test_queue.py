"""The order of the queue, and backfill."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.control.stepping import MASTER, Room, gang, ready, started
from turnout.control.explain import explain
from turnout.control.queue import Queue, QueueEntry, Release, may_backfill, reservation
from turnout.errors import Unavailable
from turnout.job import State
from turnout.job.resources import GIB, Share


def test_first_come_first_served() -> None:
    free = ready(cpu=1)
    running, second, third = (free.create(gang()) for _ in range(3))
    assert started(free.end(running)) == [second.id]
    assert started(free.end(second)) == [third.id]


def test_a_higher_priority_goes_first() -> None:
    free = ready(cpu=1)
    running = free.create(gang())
    free.create(gang())
    urgent = free.create(gang(priority=5))
    assert started(free.end(running)) == [urgent.id]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    free = ready(cpu=3)
    running = free.create(gang(cpu=2))
    wide = free.create(gang(workers=1))
    assert wide.state is State.QUEUED
    assert started(free.end(running)) == [wide.id]


def test_a_job_that_takes_nothing_of_what_the_head_is_short_of_may_backfill() -> None:
    free = ready(cpu=8, gpus=1)
    free.create(gang(gpus=1))
    head = free.create(gang(cpu=4, gpus=1))
    small = free.create(gang(cpu=3))
    assert head.state is State.QUEUED
    assert small.state is State.PREPARING
    too_much = free.create(gang(cpu=1))
    assert too_much.state is State.QUEUED, "the head's own share of the CPUs must be left"


def test_a_job_without_a_limit_never_takes_what_the_head_waits_for() -> None:
    free = ready(cpu=4)
    free.create(gang(cpu=3))
    head = free.create(gang(cpu=2))
    late = free.create(gang(cpu=1))
    assert (head.state, late.state) == (State.QUEUED, State.QUEUED)


def test_a_job_that_ends_before_the_heads_reservation_may_backfill() -> None:
    free = ready(cpu=4)
    free.create(gang(cpu=3, time_limit=1000))
    free.create(gang(cpu=4))
    short = free.create(gang(cpu=1, time_limit=100))
    long = free.create(gang(cpu=1, time_limit=5000))
    assert (short.state, long.state) == (State.PREPARING, State.QUEUED)


shares = st.builds(Share, st.integers(0, 8), st.integers(0, 8), st.integers(0, 4))


@given(need=shares, head=shares, free=shares)
def test_passing_without_a_limit_leaves_the_head_as_near_as_it_was(
    need: Share, head: Share, free: Share
) -> None:
    """Whatever is freed later, the head starts no later than without the job that passed."""
    if head.fits(free) or not need.fits(free) or not may_backfill(need, None, head, free, 0, lambda: None):
        return
    left = free - need
    for wants, before, after in zip(head, free, left, strict=True):
        assert max(0, wants - after) == max(0, wants - before)


@given(need=shares, free=shares, releases=st.lists(st.builds(Release, st.floats(0, 100), shares), max_size=5))
def test_a_reservation_is_the_first_time_that_is_certain(
    need: Share, free: Share, releases: list[Release]
) -> None:
    at = reservation(need, free, sorted(releases))
    total = free
    for release in sorted(releases):
        total += release.share
    if at is None:
        assert need.fits(free) is False or not releases or not need.fits(total)
    else:
        freed = free
        for release in releases:
            if release.at <= at:
                freed += release.share
        assert need.fits(freed)


@settings(max_examples=60, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
        min_size=1,
        max_size=12,
    ),
    data=st.data(),
)
def test_never_more_than_there_is_and_everything_runs_in_the_end(
    jobs: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    free = ready(cpu=4, gpus=2)
    running: list[int] = []
    created = []
    for cpu, gpus, workers, priority in jobs:
        try:
            created.append(free.create(gang(cpu=cpu, gpus=gpus, workers=workers, priority=priority)))
        except Unavailable:
            assert gpus * (workers + 1) > 2
    while any(job.live for job in created):
        running = [job.id for job in created if job.state is State.PREPARING]
        assert running, "something always runs"
        pool = free.machine.pools["local"]
        assert pool.free.gpus >= 0
        devices = [g for i in running for held in free.machine.jobs[i].placement.values() for g in held.gpus]
        assert len(devices) == len(set(devices))
        chosen = data.draw(st.sampled_from(running))
        job = next(job for job in created if job.id == chosen)
        for name in list(free.machine.jobs[chosen].replicas):
            if name != MASTER:
                free.end(job, name)
        free.end(job)
    assert free.machine.pools["local"].free == Share(4000, 16 * GIB, 2)


def test_ten_thousand_waiting_jobs_of_one_shape_cost_as_much_as_one() -> None:
    free = ready(cpu=1)
    free.create(gang())
    free.step(*(free.creation(gang()) for _ in range(10_000)))
    assert len(free.machine.queues["local"].firsts()) == 1


def test_many_shapes_are_looked_at_once_however_many_jobs_start(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def firsts(queue: Queue) -> list[QueueEntry]:
        found = plain(queue)
        looks.append(len(found))
        return found

    plain = Queue.firsts
    monkeypatch.setattr(Queue, "firsts", firsts)
    free = ready(cpu=64)
    specs = (gang(memory=GIB // 8, time_limit=1000.0 + number % 500) for number in range(1000))
    turn = free.step(*map(free.creation, specs))
    assert started(turn) == list(range(1, 65))
    assert looks == [500, 500]


class TestExplain:
    def test_an_explanation_shows_what_is_missing_who_holds_it_and_who_is_ahead(self) -> None:
        free = ready(cpu=4, gpus=2)
        free.create(gang(gpus=2), "holder")
        free.create(gang(gpus=2), "ahead")
        job = free.create(gang(gpus=1), "mine")
        found = explain(free.machine, free.machine.jobs[job.id])
        assert (found.position, found.waiting) == (2, 2)
        assert found.missing == {"gpus": 1}
        text = " ".join(found.why)
        assert "1 of 2 GPUs (0 free)" in text
        assert "holder holds 2 GPUs" in text
        assert "ahead" in text

    def test_says_when_there_is_room_but_the_head_would_suffer(self) -> None:
        free = ready(cpu=4)
        free.create(gang(cpu=3))
        free.create(gang(cpu=2), "head")
        job = free.create(gang(cpu=1))
        assert "could delay head" in " ".join(explain(free.machine, free.machine.jobs[job.id]).why)

    def test_says_that_the_engine_is_not_there_yet(self) -> None:
        free = Room()
        job = free.create(gang())
        assert "has not reported yet" in " ".join(explain(free.machine, free.machine.jobs[job.id]).why)
