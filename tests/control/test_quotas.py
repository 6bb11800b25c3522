"""Quotas of projects, and fair share between them."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.control.stepping import Room, gang, ready, reloaded, started
from turnout import projects
from turnout.control.explain import explain
from turnout.control.turn import Create
from turnout.errors import Misconfigured, OverQuota
from turnout.job import Job, NewJob, Search, Spec, State
from turnout.job.resources import GIB
from turnout.projects import KeyQuota, Quota, Quotas


def with_quotas(cpu: float = 4, gpus: int = 0, **quotas: Quota) -> Room:
    room = ready(cpu=cpu, gpus=gpus)
    room.machine.quotas = Quotas({name.replace("others", "*"): quota for name, quota in quotas.items()})
    return room


def create(room: Room, project: str, spec: Spec | None = None, count: int = 1) -> list[Job]:
    room.project = project
    return [room.create(spec or gang()) for _ in range(count)]


def why(room: Room, job: Job) -> str:
    return " ".join(explain(room.machine, room.machine.jobs[job.id]).why)


def running(room: Room) -> Counter[str]:
    return Counter(live.job.project for live in room.machine.placed.values())


# Fair share.


def test_four_hundred_jobs_of_one_project_do_not_put_another_last() -> None:
    room = with_quotas(cpu=2)
    flood = create(room, "a", count=400)
    (one,) = create(room, "b")
    room.end(flood[0])  # the head of the queue was the third job of a: it keeps its turn
    assert started(room.end(flood[1])) == [one.id]


def test_weights_divide_the_machine() -> None:
    room = with_quotas(cpu=8, a=Quota(weight=3))
    filling = create(room, "c", gang(cpu=8))
    create(room, "a", count=20)
    create(room, "b", count=20)
    room.end(filling[0])
    assert running(room) == {"a": 6, "b": 2}


def test_what_counts_is_the_resource_of_which_a_project_uses_most() -> None:
    room = with_quotas(cpu=8, gpus=2)
    create(room, "a", gang(cpu=1, gpus=1))  # half of the GPUs
    create(room, "b", gang(cpu=3))  # three eighths of the CPUs
    (filling,) = create(room, "c", gang(cpu=4))
    first, second = create(room, "a", gang(cpu=4)) + create(room, "b", gang(cpu=4))
    room.machine.heads.clear()
    assert started(room.end(filling)) == [second.id]
    assert first.state is State.QUEUED


def test_a_large_job_that_is_next_is_not_passed_for_ever() -> None:
    room = with_quotas(cpu=4)
    create(room, "a")
    (small,) = create(room, "b")
    (large,) = create(room, "a", gang(cpu=3))
    for _ in range(5):  # b uses no more than a, and always has another job
        create(room, "b")
    assert started(room.end(small)) == [large.id]


def test_priority_comes_before_fair_share() -> None:
    room = with_quotas(cpu=2)
    ended = create(room, "a", count=2)
    create(room, "b")
    (urgent,) = create(room, "a", gang(priority=5))
    assert started(room.end(ended[0])) == [urgent.id]


def test_the_explanation_says_that_other_projects_wait() -> None:
    room = with_quotas(cpu=1)
    create(room, "a", count=3)
    (job,) = create(room, "b")
    found = explain(room.machine, room.machine.jobs[job.id])
    assert (found.position, found.waiting) == (1, 1)
    assert "Jobs of another project wait too" in " ".join(found.why)


# Quotas.


@pytest.mark.parametrize(
    ("quota", "words"),
    [
        (Quota(jobs=2), "2 running jobs"),
        (Quota(cpus=2.5), "2.5 CPUs"),
        (Quota(memory=2 * GIB), "2 GiB of memory"),
        (Quota(gpus=2), "2 GPUs"),
    ],
)
def test_over_a_running_quota_a_job_waits_and_others_pass(quota: Quota, words: str) -> None:
    room = with_quotas(cpu=8, gpus=8, a=quota)
    first, second, third = create(room, "a", gang(gpus=1), count=3)
    (other,) = create(room, "b", gang(gpus=1))
    assert [job.state for job in (second, third, other)] == [State.PREPARING, State.QUEUED, State.PREPARING]
    text = why(room, third)
    assert "The quota of project a is used up" in text
    assert words in text
    assert "[projects.a]" in text
    assert started(room.end(first)) == [third.id]


def test_the_quota_holds_after_a_restart_of_the_service() -> None:
    room = with_quotas(a=Quota(jobs=1))
    first, second = create(room, "a", count=2)
    after = reloaded(room, first.current)
    assert started(after.tick(1)) == []
    assert after.machine.jobs[second.id].job.state is State.QUEUED


@pytest.mark.parametrize("quota", [Quota(cpus=2), Quota(memory=2 * GIB), Quota(gpus=1), Quota(jobs=0)])
def test_a_gang_larger_than_its_quota_is_refused(quota: Quota) -> None:
    room = with_quotas(cpu=8, gpus=8, others=quota)
    with pytest.raises(OverQuota, match=r'project a may use at most .* \(\[projects\."\*"\]'):
        create(room, "a", gang(gpus=1, workers=2))
    assert not room.machine.jobs


def test_more_waiting_jobs_than_allowed_are_refused() -> None:
    room = with_quotas(cpu=1, a=Quota(waiting=2))
    first, *_ = create(room, "a", count=3)
    with pytest.raises(OverQuota, match="project a already has 2 waiting jobs"):
        create(room, "a")
    create(room, "b", count=3)
    room.end(first)
    create(room, "a")


def test_searches_count_as_waiting_until_their_first_trial_starts() -> None:
    room = with_quotas(a=Quota(waiting=1))
    search = Spec(gang().roles, search=Search((), (), ()))
    room.project = "a"
    first = room.create(search)
    with pytest.raises(OverQuota):
        room.create(search)
    room.machine.begin_search(room.machine.jobs[first.id], room.steady)
    second = room.create(search)
    room.stop(second)
    assert room.machine.waiting("a") == 0


def with_key_quotas(cpu: float = 4, **keys: KeyQuota) -> Room:
    room = ready(cpu=cpu)
    room.machine.quotas = Quotas({}, {name.replace("others", "*"): quota for name, quota in keys.items()})
    return room


def test_over_the_quota_of_a_key_its_jobs_wait_and_those_of_other_keys_pass() -> None:
    room = with_key_quotas(ann=KeyQuota(jobs=1))
    room.owner = "ann"
    first, second = create(room, "a", count=2)
    room.owner = "bob"
    (other,) = create(room, "a")
    assert [job.state for job in (second, other)] == [State.QUEUED, State.PREPARING]
    assert "The quota of key ann is used up: it may use 1 running job at a time ([keys.ann]" in why(
        room, second
    )
    assert started(room.end(first)) == [second.id]


def test_a_key_is_refused_what_can_never_start_and_too_many_that_wait() -> None:
    room = with_key_quotas(cpu=1, others=KeyQuota(cpus=2, waiting=1), bob=KeyQuota())
    room.owner = "ann"
    with pytest.raises(OverQuota, match=r'key ann may use at most 2 CPUs at a time \(\[keys\."\*"\]'):
        create(room, "a", gang(cpu=3))
    running, waiting = create(room, "a", count=2)
    with pytest.raises(OverQuota, match="key ann already has 1 waiting job and"):
        create(room, "b")
    room.owner = "bob"
    create(room, "a", count=3)
    room.owner = "root"  # `*` does not limit it
    create(room, "a", count=3)
    room.owner = "ann"
    room.end(running)
    room.delete(waiting) if waiting.state is State.QUEUED else None
    create(room, "b")


def test_searches_count_for_their_key_too() -> None:
    room = with_key_quotas(ann=KeyQuota(waiting=1))
    room.owner = "ann"
    search = Spec(gang().roles, search=Search((), (), ()))
    first = room.create(search)
    with pytest.raises(OverQuota):
        room.create(search)
    room.stop(first)
    room.create(search)


@settings(max_examples=60, deadline=None)
@given(
    jobs=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 2)), max_size=20),
    data=st.data(),
)
def test_no_quota_is_exceeded_and_everything_runs_in_the_end(
    jobs: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    room = with_quotas(cpu=4, a=Quota(jobs=1), b=Quota(cpus=3), c=Quota(weight=2))
    specs = [(project, gang(cpu=cpu, priority=priority)) for project, cpu, priority in jobs]
    created: list[Job] = []
    for number, (project, spec) in enumerate(specs, 1):
        new = NewJob(project, "tia", "tia:here", str(number), str(number), "here", spec, b"{}")
        (answer,) = room.step(Create(number, new, taken=False)).answers
        assert isinstance(answer, Job)
        created.append(answer)
    while live := [job for job in created if job.live]:
        placed = [job for job in live if job.state is State.PREPARING]
        assert placed, "something always runs"
        assert room.machine.placed.used_by("a").jobs <= 1
        assert room.machine.placed.used_by("b").share.millicores <= 3000
        room.end(data.draw(st.sampled_from(placed)))
    assert all(job.state is State.SUCCEEDED for job in created)
    assert not room.machine.placed._used


@pytest.mark.parametrize("quota", [Quota(jobs=-1), Quota(cpus=float("nan")), Quota(weight=0)])
def test_settings_without_sense_are_refused(quota: Quota) -> None:
    with pytest.raises(Misconfigured, match=r"\[projects\.vision\]"):
        projects.check({"vision": quota}, {})
