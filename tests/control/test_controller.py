"""The loop around the machine, on a real store, with an engine that does what the test says."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from tests.control.scripted import ScriptedEngine, ScriptedStore, ended, new, opened, until
from tests.control.stepping import MASTER, gang
from turnout.control import Controller, commands, controller
from turnout.control.live_jobs import LiveJobs
from turnout.control.turn import Create, Instruction
from turnout.engines import EngineRegistry, Refused, Unreachable
from turnout.errors import AlreadyExists, NotStored
from turnout.job import (
    Cause,
    Ended,
    EventKind,
    Job,
    Reason,
    Report,
    Retry,
    Sample,
    Sampled,
    State,
)
from turnout.service import Jobs
from turnout.store import Batch, LiveRecord, Store


@pytest.mark.parametrize("failures", [1, 2])
async def test_an_outbox_that_fails_goes_on_with_the_same_job_and_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    left = [ZeroDivisionError()] * failures
    refuse = Controller._refuse

    def failing(self: Controller, instruction: Instruction, why: str) -> None:
        if left:
            raise left.pop()
        refuse(self, instruction, why)

    monkeypatch.setattr(Controller, "_refuse", failing)
    monkeypatch.setattr(controller, "_RETRY_SECONDS", 0.2)
    async with opened(tmp_path, engine := ScriptedEngine()) as (control, store):
        engine.sync()
        engine.fails = [Refused("it does not want to") for _ in range(failures)]
        first = await control.create(new("first"))
        await until_running(control, False)
        second = await control.create(new("second"))
        await engine.until_asked(*["start"] * (2 + failures))
        await until_running(control, True)
        for job in (first, second):
            engine.run(job)
            assert (await ended(control, store, job)).state is State.SUCCEEDED


async def test_an_instruction_that_always_fails_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(self: Controller, instruction: Instruction, why: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Controller, "_refuse", failing)
    monkeypatch.setattr(controller, "_RETRY_SECONDS", 0.05)
    async with opened(tmp_path, engine := ScriptedEngine()) as (control, store):
        engine.sync()
        engine.fails = [Refused("it does not want to") for _ in range(3)]
        await control.create(new("never"))
        await engine.until_asked("start", "start", "start")
        await until_running(control, True)
        good = await control.create(new("good"))
        engine.run(good)
        assert (await ended(control, store, good)).state is State.SUCCEEDED
    assert "failed 3 times and is dropped" in caplog.text


async def test_a_line_of_reports_that_breaks_is_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking(ScriptedEngine):
        breaks = 2

        async def reports(self) -> AsyncIterator[Report]:
            if self.breaks:
                self.breaks -= 1
                raise ZeroDivisionError
            async for report in super().reports():
                yield report

    monkeypatch.setattr(controller, "_RETRY_SECONDS", 0.05)
    async with opened(tmp_path, engine := Breaking()) as (control, store):
        await until_running(control, False)
        engine.sync()
        job = await control.create(new("one"))
        job = await until(control, store, job, lambda found: found.state is State.PREPARING)
        engine.run(job)
        assert (await ended(control, store, job)).state is State.SUCCEEDED
        assert control.running()


async def test_a_turn_that_cannot_even_be_taken_back_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_RETRY_SECONDS", 0.05)
    async with opened(tmp_path, engine := ScriptedEngine()) as (control, store):
        engine.sync()
        job = await control.create(new("one"))
        await engine.until_asked("start")
        failures = [ZeroDivisionError(), ZeroDivisionError()]
        live = store.live

        async def failing() -> list[LiveRecord]:
            if failures:
                raise failures.pop()
            return await live()

        monkeypatch.setattr(store, "live", failing)
        store.broken = True
        engine.run(job)
        await until_running(control, False)
        store.broken = False
        assert (await ended(control, store, job)).state is State.SUCCEEDED
        assert control.running()


async def until_running(control: Controller, wanted: bool) -> None:
    async with asyncio.timeout(20):
        while control.running() is not wanted:  # noqa: ASYNC110 nobody tells of it
            await asyncio.sleep(0.01)


async def test_a_life(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with opened(tmp_path, engine) as (control, store):
        engine.sync()
        job = await control.create(new("one"))
        assert (await store.job(job.id)) is not None, "on disk before the answer"
        engine.run(job)
        assert (await ended(control, store, job)).state is State.SUCCEEDED
        assert [what for what, _ in engine.asked] == ["start", "forget"]
        with pytest.raises(AlreadyExists):
            await control.create(new("one"))
        await control.delete(job.id, "alice")
        await control.create(new("one"))


async def test_a_commit_whose_answer_is_lost_is_acted_on(tmp_path: Path) -> None:
    """Nothing else would start the job before the engine connects again."""
    engine = ScriptedEngine()
    async with opened(tmp_path, engine) as (control, store):
        engine.sync()
        await control.create(new("zero"))  # so that the turn that is lost has one create alone
        await engine.until_asked("start")
        store.silent = True
        with pytest.raises(NotStored, match="connection broke"):
            await control.create(new("one"))
        await engine.until_asked("start", "start")
        job = await store.by_handle("p", "tia:here", "one")
        assert job is not None
        assert job.state is State.PREPARING
        store.silent = True
        engine.run(job)
        assert (await ended(control, store, job)).state is State.SUCCEEDED
        await engine.until_asked("start", "start", "forget", "stop", "forget")


async def test_a_commit_that_fails_has_not_happened(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with opened(tmp_path, engine) as (control, store):
        engine.sync()
        running = await control.create(new("running"))
        store.broken = True
        with pytest.raises(NotStored, match="disk is full"):
            await control.create(new("one"))
        assert await store.by_handle("p", "tia:here", "one") is None
        engine.run(running, code=4)
        await asyncio.sleep(0.05)
        store.broken = False
        # What the engine reported meanwhile is not lost.
        assert (await ended(control, store, running)).message == "master-0 exited with code 4"
        await control.create(new("one"))
        assert [what for what, _ in engine.asked] == ["start", "forget", "start"]


async def test_what_the_engine_refuses_fails_with_its_words(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with opened(tmp_path, engine) as (control, store):
        engine.sync()
        engine.fails = [Refused("no such volume")]
        job = await ended(control, store, await control.create(new("one")))
        assert (job.state, job.reason) == (State.FAILED, Reason.REFUSED)
        assert "no such volume" in job.message


async def test_lost_instructions_are_repeated(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with opened(tmp_path, engine) as (control, store):
        engine.sync()
        engine.fails = [Unreachable("gone")]
        job = await control.create(new("one"))
        engine.sync()
        await engine.until_asked("start", "start")
        engine.run(job)
        await ended(control, store, job)
        await engine.until_asked("start", "start", "forget")


async def test_an_engine_that_cannot_be_reached_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    """In the order in which it was asked; it need not say anything for that."""
    engine = ScriptedEngine()
    async with opened(tmp_path, engine) as (control, _):
        engine.sync()
        engine.fails = [Unreachable("gone"), Unreachable("gone")]
        job = await control.create(new("one"))
        await control.stop(job.id, "alice")
        await engine.until_asked("start", "start", "start", "stop")


async def test_a_cluster_that_is_away_is_named_alone(tmp_path: Path) -> None:
    away, near = ScriptedEngine(), ScriptedEngine()
    store = Store.open("", tmp_path / "turnout.db")
    registry = EngineRegistry({"away": away, "near": near}, {"here": "away", "there": "near"})  # type: ignore[dict-item]
    control = Controller(store, registry)
    jobs = Jobs(store, control, registry)
    await control.start()
    try:
        assert set(jobs.cluster_troubles().values()) == {"its engine has not reported yet what it runs"}
        for engine in (away, near):
            engine.sync()
        away.fails = [Unreachable("no route to the login node")]
        job = await control.create(new("one"))
        await away.until_asked("start")
        assert jobs.cluster_troubles() == {"here": "no route to the login node", "there": ""}
        await away.until_asked("start", "start")
        away.run(job)
        await ended(control, store, job)
        assert not any(jobs.cluster_troubles().values())
    finally:
        await control.close()
        await store.close()


async def test_an_engine_that_hangs_delays_no_other(tmp_path: Path) -> None:
    slow, quick = ScriptedEngine(), ScriptedEngine()
    slow.hangs["stuck"] = asyncio.Event()
    store = Store.open("", tmp_path / "turnout.db")
    clusters = {"here": "slow", "there": "quick"}
    control = Controller(store, EngineRegistry({"slow": slow, "quick": quick}, clusters))  # type: ignore[dict-item]
    await control.start()
    try:
        slow.sync()
        quick.sync()
        async with asyncio.timeout(20):
            stuck = await control.create(new("stuck"))
            assert (await control.amend(stuck.id, "alice", note="meanwhile")).state is State.PREPARING
            await control.create(new("behind"))
            other = await control.create(structs.replace(new("other"), cluster="there", scope="tia:there"))
            quick.run(other)
            assert (await ended(control, store, other)).state is State.SUCCEEDED
            await control.stop(stuck.id, "alice")
        assert slow.asked == []
        assert control.running()
        slow.hangs["stuck"].set()
        await slow.until_asked("start", "start", "stop")
    finally:
        await control.close()
        await store.close()


async def test_what_was_decided_is_done_before_the_service_ends(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    engine.hangs["one"] = asyncio.Event()
    async with opened(tmp_path, engine) as (control, _):
        engine.sync()
        await control.create(new("one"))
        asyncio.get_running_loop().call_soon(engine.hangs["one"].set)
    assert [what for what, _ in engine.asked] == ["start"]


async def test_waiting_callers_are_woken_at_the_end(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with opened(tmp_path, engine) as (control, _):
        with control.changes.watch(1) as changed:
            control.changes.close()
            assert changed.is_set()
        with control.changes.watch(2) as changed:
            assert changed.is_set()


async def test_requests_that_arrive_together_share_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop reads many sockets one after the other, so their requests come in successive rounds of it."""
    async with opened(tmp_path, ScriptedEngine()) as (control, store):
        sizes: list[int] = []

        async def commit(batch: Batch) -> None:
            sizes.append(len(batch.created))
            await ScriptedStore.commit(store, batch)

        monkeypatch.setattr(store, "commit", commit)

        async def create_in_round(number: int) -> None:
            for _ in range(number):
                await asyncio.sleep(0)
            await control.create(new(f"job-{number}"))

        await asyncio.gather(*map(create_in_round, range(20)))
        assert sizes == [20]


async def test_it_sleeps_when_nothing_happens(tmp_path: Path) -> None:
    """No timer is set and no task is due: the loop has nothing to wake up for."""
    engine = ScriptedEngine()
    async with opened(tmp_path, engine) as (control, store):
        engine.sync()
        job = await control.create(new("one"))
        engine.run(job)
        await ended(control, store, job)
        await asyncio.sleep(0.05)
        assert control._timer is None
        assert not control._wake.is_set


async def test_an_engine_that_has_an_accident_hurts_one_job_only(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with opened(tmp_path, engine) as (control, store):
        engine.sync()
        engine.fails = [OSError("File name too long")]
        job = await ended(control, store, await control.create(new("one")))
        assert (job.state, job.reason) == (State.FAILED, Reason.REFUSED)
        assert "File name too long" in job.message
        assert (await control.create(new("two"))).state is State.PREPARING
        assert control.running()


async def test_an_input_that_cannot_be_digested_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in one input does not affect the other inputs of its turn, and the loop continues."""
    engine = ScriptedEngine()
    create = commands.create

    def poisoned(live_jobs: LiveJobs, command: Create) -> Job:
        if command.new.name == "poison":
            raise ZeroDivisionError
        return create(live_jobs, command)

    monkeypatch.setattr(commands, "create", poisoned)
    async with opened(tmp_path, engine) as (control, store):
        engine.sync()
        names = ["a", "poison", "b"]
        answers = await asyncio.gather(*(control.create(new(name)) for name in names), return_exceptions=True)
        assert [isinstance(answer, Job) for answer in answers] == [True, False, True]
        assert "internal error" in str(answers[1])
        assert await store.by_handle("p", "tia:here", "b") is not None
        assert control.running()


class TestRestart:
    """The service ends and another takes its place, on the same store."""

    async def test_what_was_used_up_of_the_retries_stays_used_up(self, tmp_path: Path) -> None:
        once = gang(retries=(Retry((Reason.PROGRAM_FAILED,), 1),))
        engine = ScriptedEngine()
        async with opened(tmp_path, engine) as (control, store):
            engine.sync()
            job = await control.create(new("one", once))
            engine.run(job, code=4)
            again = await until(control, store, job, lambda found: found.attempt == 2)
            assert [past.reason for past in await store.past(job.id)] == [Reason.PROGRAM_FAILED]
        engine = ScriptedEngine()
        async with opened(tmp_path, engine) as (control, store):
            engine.sync(again.current)
            engine.run(again, code=5)
            found = await ended(control, store, job)
            assert (found.state, found.message) == (State.FAILED, "master-0 exited with code 5")
            kinds = [event.kind for event in await store.events(job.id)]
            assert kinds.count(EventKind.RETRIED) == 1

    async def test_a_preemption_that_was_begun_is_carried_through(self, tmp_path: Path) -> None:
        engine = ScriptedEngine(cpu=1)
        async with opened(tmp_path, engine) as (control, store):
            engine.sync()
            victim = await control.create(new("victim", gang(preemptible=True)))
            urgent = await control.create(new("urgent", gang(priority=1)))
            assert engine.asked[-1] == ("stop", victim.current)
        engine = ScriptedEngine(cpu=1)
        async with opened(tmp_path, engine) as (control, store):
            engine.sync(victim.current)
            engine.said.put_nowait(Ended(victim.current, MASTER, 3, Cause.STOPPED))
            await until(control, store, urgent, lambda found: found.state is State.PREPARING)
            found = await store.job(victim.id)
            assert found is not None
            assert (found.state, found.attempt) == (State.QUEUED, 1)
            assert [past.reason for past in await store.past(victim.id)] == [Reason.PREEMPTED]


async def test_an_amendment_is_on_disk_before_the_answer(tmp_path: Path) -> None:
    engine = ScriptedEngine(cpu=1)
    async with opened(tmp_path, engine) as (control, store):
        engine.sync()
        running = await control.create(new("running"))
        job = await control.create(new("one"))
        amended = await control.amend(job.id, "alice", document=b"{2}", priority=3, labels={"a": "b"})
        assert await store.job(job.id) == amended
        assert amended.priority == 3
        assert await store.documents([job.id]) == {job.id: b"{2}"}
        assert await store.labels([job.id]) == {job.id: {"a": "b"}}
        engine.run(running)
        await ended(control, store, running)
        await control.amend(running.id, "alice", document=b"{3}")
        assert await store.documents([running.id]) == {running.id: b"{3}"}


async def test_who_has_waited_long_enough_is_let_go_by_the_one_timer(tmp_path: Path) -> None:
    engine = ScriptedEngine(cpu=1)
    async with opened(tmp_path, engine) as (control, store):
        engine.sync()
        await control.create(new("running"))
        job = await control.create(new("one", gang(max_wait=0.05)))
        assert (await ended(control, store, job)).reason is Reason.WAITED
        await asyncio.sleep(0)
        assert control._timer is None


async def test_samples_come_to_the_store(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    async with opened(tmp_path, engine) as (control, store):
        engine.sync()
        job = await control.create(new("one"))
        samples = [Sample(MASTER, at, cpu=50.0) for at in (1, 2)]
        for sample in samples:
            engine.said.put_nowait(Sampled(job.current, (sample,)))
        engine.run(job)
        await ended(control, store, job)
        assert await store.samples(job.id, MASTER) == samples
