"""The worker pool: sharing, kills, memory limits and an unprivileged user."""

import asyncio
import contextlib
import os
import pwd
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest
from msgspec.structs import replace

from bench.alone import PROBLEMS
from tests.running import children_with
from tests.search.faulty_workers import process
from tests.search.harness import Harness
from tests.search.in_process import run, space
from turnout.child_processes.bootstrap import Identity
from turnout.errors import Invalid, Unavailable
from turnout.job.search import Metric, Point
from turnout.search import SearchWorkerPool, StudyClient, study_client
from turnout.search.messages import Ask, Open
from turnout.search.worker import Studies

BRANIN = PROBLEMS[0]
NOBODY = pwd.getpwnam("nobody")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@asynccontextmanager
async def pooled(*arguments: int, **more: object) -> AsyncIterator[SearchWorkerPool]:
    pool = SearchWorkerPool(*arguments, **more)  # type: ignore[arg-type]
    yield pool
    await pool.close()
    assert processes() == []


def processes() -> list[psutil.Process]:
    modules = ("turnout.search.worker", "tests.search.faulty_workers")
    return [one for module in modules for one in children_with(os.getpid(), module)]


async def asked(pool: SearchWorkerPool, seed: int, trials: int, project: str = "") -> list[Point]:
    study = StudyClient(pool)
    await study.open(space(BRANIN.bounds, "random", seed=seed), 1, [], project)
    points: list[Point] = []
    for number in range(trials):
        points.append(await study.ask(number))
        await study.tell(number, BRANIN.objective(points[-1]))
    return points


async def test_sixty_searches_share_a_few_processes():
    async with pooled(3) as pool:
        study = [asyncio.create_task(asked(pool, seed, 4, f"project-{seed % 7}")) for seed in range(60)]
        most = 0
        while not all(task.done() for task in study):
            most = max(most, len(processes()))
            await asyncio.sleep(0.01)
        for seed, task in enumerate(study):
            assert task.result() == run(space(BRANIN.bounds, "random", seed=seed), BRANIN.objective, 4)
        assert 1 <= most <= 3


async def test_one_after_the_other_they_need_only_one():
    async with pooled(3) as pool:
        for seed in range(3):
            await asked(pool, seed, 2)
        assert len(processes()) == 1


async def test_killed_workers_do_not_block_searches():
    chance = random.Random(5)
    async with pooled(3) as pool:
        study = [asyncio.create_task(asked(pool, seed, 12)) for seed in range(9)]
        for _ in range(6):
            await asyncio.sleep(0.5)
            for one in processes():
                if chance.random() < 0.5:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.kill()
        for seed, points in enumerate(await asyncio.gather(*study)):
            assert points == run(space(BRANIN.bounds, "random", seed=seed), BRANIN.objective, 12)


async def test_a_search_that_needs_too_much_memory_fails_by_name_and_the_others_go_on():
    async with pooled(1, 1 << 30, program=process("greedy")) as pool:
        greedy = StudyClient(pool)
        await greedy.open(space({"greedy": (0, 1)}, "random"), 1, [])
        other = asyncio.create_task(asked(pool, 3, 5))
        with pytest.raises(Unavailable, match=r"\[limits\] search_memory is 1073741824"):
            await greedy.ask(0)
        assert await other == run(space(BRANIN.bounds, "random", seed=3), BRANIN.objective, 5)


async def test_a_project_with_endless_searches_does_not_block_others(monkeypatch: pytest.MonkeyPatch):
    """It gets one of two workers, and other projects do not wait for all of its requests."""
    monkeypatch.setattr(study_client, "SCAN_SECONDS", 2)
    slow = replace(space(BRANIN.bounds, "random"), metrics=(Metric("score", "max", r"(a+)+b"),))
    async with pooled(2) as pool:
        flood: list[asyncio.Task[object]] = []
        for _ in range(12):
            one = StudyClient(pool)
            await one.open(slow, 1, [], "flood")
            flood.append(asyncio.create_task(one.scan(["a" * 60])))
        await asyncio.sleep(0)
        assert len(await asked(pool, 3, 3, "innocent")) == 3
        assert sum(not task.done() for task in flood) >= 10
        with pytest.raises(Invalid, match="took more than 2 seconds"):
            await flood[0]
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
        assert len(await asked(pool, 4, 1, "flood")) == 1


async def test_a_cancelled_wait_leaves_the_worker_to_the_next():
    async with pooled(1) as pool:
        async with pool.worker("a"):
            waiting = [asyncio.create_task(asked(pool, 1, 1, name)) for name in "abc"]
            await asyncio.sleep(0)
            waiting[0].cancel()
        await waiting[1]
        assert await waiting[2] == await asked(pool, 1, 1)


@AS_ROOT
async def test_searches_of_a_root_service_run_unprivileged_and_can_import_all_libraries(harness: Harness):
    cache = harness.root / "search"
    cache.mkdir()
    (cache / "left by root").touch(0o600)
    who = Identity(NOBODY.pw_uid, NOBODY.pw_gid)
    async with pooled(2, cache=cache, identity=who) as pool:
        for algorithm in ("bayes_opt_search", "tpe_search", "random", "default"):
            study = StudyClient(pool)
            search = space(BRANIN.bounds, algorithm, seed=2)
            await study.open(search, 1, [])
            for number in range(4):
                await study.tell(number, BRANIN.objective(await study.ask(number)))
            await study.importance()
            assert (await study.picture()).startswith(b"\x89PNG")
        (one,) = processes()
        assert set(one.uids()) == {NOBODY.pw_uid}
        assert set(one.gids()) == {NOBODY.pw_gid}
    assert {path.stat().st_uid for path in (cache, *cache.iterdir())} == {NOBODY.pw_uid}
    assert len(list(cache.iterdir())) > 1


def test_a_process_holds_only_so_many_searches():
    sessions = Studies(2)
    for session in (1, 2, 3):
        assert sessions.answer(Open(space(BRANIN.bounds, "random"), 1, session=session)).invalid == ""
    assert [sessions.answer(Ask(0, session=session)).unknown_session for session in (1, 2, 3)] == [
        True,
        False,
        False,
    ]
