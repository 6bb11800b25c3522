"""Trials under retries, preemption and queues; killed processes and failures at bad moments."""

import asyncio
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from msgspec.structs import replace

from tests.running import children
from tests.search.faulty_workers import process
from tests.search.harness import ME, PATIENCE, SCORE, Harness, RunningService, along_x, outcome, over, until
from tests.search.in_process import run
from turnout.errors import Invalid, NotFound, WrongState
from turnout.job import (
    Compare,
    Job,
    Measurement,
    NewJob,
    Page,
    Policy,
    Program,
    Reason,
    Resources,
    Retry,
    Role,
    Spec,
    State,
    Trial,
    TrialState,
)
from turnout.job.search import Algorithm, Search, Value
from turnout.service import Caller, JobView, TrialJobs
from turnout.store import StoreError

ONE_PLACE = 0.0001
"""CPU for one gang only."""
RETRIED = Policy(grace=5, retries=(Retry((Reason.PROGRAM_FAILED,), 1),))
FIRST = 'if mkdir "$SHARED/first-$TRIAL" 2>/dev/null; then '
"""Only the first attempt of a trial runs what follows."""


async def curve(here: RunningService, view: JobView, number: int = 0) -> dict[int, float]:
    return {one.step: one.metrics["score"] for one in await here.searches.measurements(view, number)}


def tpe(trials: int, wide: int = 1) -> Search:
    params: dict[str, Value] = {"num_samples": trials, "seed": 3, "n_initial_points": 2}
    return replace(along_x(trials=trials, wide=wide), algorithms=(Algorithm("tpe_search", params),))


class TestRetries:
    """All attempts of a trial count: a step that is reported again is replaced, and the last report is the result."""

    LONG_THEN_SHORT = f"""
    say() {{ echo "TURNOUT_METRIC score=$2 step=$1"; }}
    {FIRST} say 1 0.7; say 2 0.8; say 3 0.9; exit 3; fi
    say 1 0.1; say 2 0.2;
    """

    async def test_the_last_attempt_decides(self, harness: Harness) -> None:
        harness.policy = RETRIED
        async with harness.service() as here:
            view, (trial,) = await outcome(here, harness.search(self.LONG_THEN_SHORT, along_x(trials=1)))
            assert (trial.state, trial.value) == (TrialState.SUCCEEDED, 0.2)
            assert (await here.jobs.by_id(ME, trial.child)).job.attempt == 2
            assert await curve(here, view) == {1: 0.1, 2: 0.2, 3: 0.9}

    async def test_the_last_attempt_decides_after_a_restart_of_the_service(self, harness: Harness) -> None:
        harness.policy = RETRIED
        async with harness.service() as here:
            script = self.LONG_THEN_SHORT + until("go")
            job = await here.create(harness.search(script, along_x(trials=1)))
            view = await here.until(job.id, lambda job: job.state is State.RUNNING)
            async with asyncio.timeout(PATIENCE):
                while await curve(here, view) != {1: 0.1, 2: 0.2, 3: 0.9}:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        async with harness.service() as here:
            (harness.shared / "go").touch()
            view = await here.ended(job.id)
            assert [one.value for one in await here.searches.trials(view)] == [0.2]

    async def test_earlier_reports_count_if_the_last_attempt_reports_nothing(self, harness: Harness) -> None:
        harness.policy = RETRIED
        async with harness.service() as here:
            script = f"{FIRST} echo score: 0.5; exit 3; fi"
            _, (trial,) = await outcome(here, harness.search(script, along_x(trials=1)))
            assert (trial.state, trial.value) == (TrialState.SUCCEEDED, 0.5)

    async def test_a_trial_fails_when_its_last_retry_does(self, harness: Harness) -> None:
        harness.policy = RETRIED
        async with harness.service() as here:
            _, trials = await outcome(
                here, harness.search("echo score: 0.5; exit 3", along_x(trials=2, wide=1))
            )
            assert [(one.state, one.value) for one in trials] == [(TrialState.INFEASIBLE, None)] * 2
            attempts = [(await here.jobs.by_id(ME, one.child)).job.attempt for one in trials]
            assert attempts == [2, 2]


class TestPlaces:
    async def test_no_trial_starts_while_a_preempted_one_waits(self, harness: Harness) -> None:
        harness.policy = Policy(grace=5, preemptible=True)
        async with harness.service(overcommit=ONE_PLACE) as here:
            script = SCORE + f'if [ "$TRIAL" = 0 ]; then {until("go")} fi'
            job = await here.create(harness.search(script, along_x(trials=4)))
            view = await here.until(job.id, lambda job: job.state is State.RUNNING)
            first, second = await here.trials_until(view, lambda trials: len(trials) == 2)
            urgent = await here.create(_urgent(harness))
            await here.until(urgent.id, lambda job: job.state is State.RUNNING)
            await here.until(first.child, lambda job: job.state is State.QUEUED)
            await here.searches.stop_trial(ME, view, second.id)
            await here.trials_until(view, lambda trials: len(over(trials)) == 1)
            (harness.shared / "go").touch()
            (harness.shared / "calm").touch()
            urgent = (await here.ended(urgent.id)).job
            view = await here.ended(job.id)
            trials = await here.searches.trials(view)
            assert view.job.state is State.SUCCEEDED
            assert [one.state for one in trials] == [
                TrialState.SUCCEEDED,
                TrialState.INFEASIBLE,
                TrialState.SUCCEEDED,
                TrialState.SUCCEEDED,
            ]
            assert urgent.ended is not None
            assert all(one.created > urgent.ended for one in trials[2:])
            assert (await here.jobs.by_id(ME, first.child)).job.attempt == 2

    async def test_two_searches_share_the_capacity_for_one_trial(self, harness: Harness) -> None:
        script = SCORE + 'mkdir "$SHARED/place" || exit 9; sleep 0.05; rmdir "$SHARED/place"'
        async with harness.service(overcommit=ONE_PLACE) as here:
            both = [await here.create(harness.search(script, along_x(trials=4), name)) for name in "ab"]
            for job in both:
                view = await here.ended(job.id)
                trials = await here.searches.trials(view)
                assert [one.state for one in trials] == [TrialState.SUCCEEDED] * 4, view.job
            begun = [(await here.store.job(job.id)) for job in both]
            assert begun[0] is not None
            assert begun[1] is not None
            assert (begun[1].started or 0) < (begun[0].ended or 0), "they take turns"

    async def test_a_trial_can_be_a_gang(self, harness: Harness) -> None:
        """A gang starts as a whole; the reports of all replicas count; one failed replica fails the trial."""
        harness.workers = 2
        script = f"""
        case "$TF_CONFIG" in *'"type":"worker"'*|*'"type": "worker"'*) me=worker;; *) me=master;; esac
        echo "$TRIAL $me" >> "$SHARED/starts"
        if [ $me = worker ]; then
            until [ $(grep -c "^$TRIAL worker" "$SHARED/starts") = 2 ]; do sleep 0.05; done
            [ "$TRIAL" != 1 ]; exit
        fi
        if [ "$TRIAL" = 1 ]; then {until("never")} fi
        {SCORE}
        """
        async with harness.service(overcommit=ONE_PLACE) as here:
            view, trials = await outcome(here, harness.search(script, along_x(trials=3, wide=3)))
            assert view.job.state is State.SUCCEEDED, view.job
            assert [one.state for one in trials] == [
                TrialState.SUCCEEDED,
                TrialState.INFEASIBLE,
                TrialState.SUCCEEDED,
            ]
            assert re.fullmatch(r"worker-\d exited with code 1", trials[1].message)
            assert trials[2].value == trials[2].parameters["x"]
        starts = (harness.shared / "starts").read_text().splitlines()
        assert sorted(starts) == sorted(
            f"{number} {who}" for number in range(3) for who in ("master", "worker", "worker")
        )


def _urgent(harness: Harness) -> NewJob:
    program = Program(("sh", "-c", until("calm")))
    role = Role(
        "master", program, resources=Resources.of(cores=1), env={"SHARED": str(harness.shared)}, leads=True
    )
    spec = Spec((role,), policy=Policy(priority=9))
    return NewJob("p", "tia", "tia:here", "urgent", "urgent", "here", spec, b"")


class TestDeaths:
    @pytest.mark.slow
    async def test_a_worker_may_die_at_any_time(self, harness: Harness) -> None:
        search = tpe(8)
        async with harness.service() as here:
            job = await here.create(harness.search(SCORE, search))
            view = await here.until(job.id, lambda job: job.state is State.RUNNING)
            for done in (1, 2, 5):
                await here.trials_until(view, lambda trials, done=done: len(over(trials)) >= done)
                _kill_the_libraries()
            view = await here.ended(job.id)
            assert view.job.state is State.SUCCEEDED, view.job
            points = [one.parameters for one in await here.searches.trials(view)]
        assert points == run(search, lambda point: float(point["x"]), 8)

    async def test_a_search_fails_if_its_worker_always_dies(self, harness: Harness) -> None:
        harness.program = process("killed")
        async with harness.service() as here:
            view, _ = await outcome(here, harness.search(SCORE, along_x(trials=2)))
            assert (view.job.state, view.job.reason) == (State.FAILED, Reason.REFUSED)
            assert "the search process was killed by SIGKILL, 3 times" in view.job.message

    async def test_a_missing_trial_number_is_filled_in(self, harness: Harness) -> None:
        """Two trials start at once, and the service dies when only the second is on disk."""
        search = along_x(trials=4)
        async with harness.service() as here:
            here.control.changes.listener = lambda job_id: None
            job = await here.create(harness.search(SCORE, search))
            point = run(search, lambda _: 0, 2)[1]
            second = Trial(job.id, 1, "00000001", 0, point, child=0, created=0)
            new = harness.trial_job(await here.jobs.view(job), second)
            await here.jobs.create(ME, new, second)
        async with harness.service() as here:
            view = await here.ended(job.id)
            trials = await here.searches.trials(view)
            assert view.job.state is State.SUCCEEDED, view.job
            assert [one.number for one in trials] == [0, 1, 2, 3]
            assert trials[1].id == second.id

    async def test_a_commit_without_a_reply_is_not_repeated(self, harness: Harness) -> None:
        harness.trial_runner = Late
        Late.told = set()
        async with harness.service() as here:
            view, trials = await outcome(here, harness.search(SCORE, along_x(trials=4)))
            assert view.job.state is State.SUCCEEDED, view.job
            assert [one.number for one in trials] == [0, 1, 2, 3]
        assert Late.told == {"create", "conclude"}

    async def test_a_database_that_is_away_for_a_while_fails_no_trial(self, harness: Harness) -> None:
        harness.trial_runner = Flaky
        Flaky.told = set()
        async with harness.service() as here:
            _, trials = await outcome(here, harness.search(SCORE, along_x(trials=2)))
            assert [one.state for one in trials] == [TrialState.SUCCEEDED] * 2
        assert len(Flaky.told) == 2


class Late(TrialJobs):
    """One reply of each kind is lost; the repeated request is refused because it was carried out already."""

    told: ClassVar[set[str]] = set()

    async def create(self, search: Job, trial: Trial) -> Job:
        job = await super().create(search, trial)
        if "create" not in self.told:
            self.told.add("create")
            await super().create(search, replace(trial))
        return job

    async def conclude(
        self, trial: Trial, attempt: int, measurements: Sequence[Measurement], best: str
    ) -> None:
        await super().conclude(trial, attempt, measurements, best)
        if "conclude" not in self.told:
            self.told.add("conclude")
            await super().conclude(trial, attempt, measurements, best)


class Flaky(TrialJobs):
    """The database is unavailable when a log is first read to its end."""

    told: ClassVar[set[int]] = set()

    async def lines(self, job: Job, cursor: str) -> tuple[list[tuple[int, str]], str, bool]:
        if not job.live and job.id not in self.told:
            self.told.add(job.id)
            raise StoreError("the connection broke")
        return await super().lines(job, cursor)


def _kill_the_libraries() -> None:
    for pid in children(os.getpid()):
        if b"turnout.search.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


class TestEnds:
    @pytest.mark.parametrize("how", ["delete", "stop"])
    async def test_while_trials_are_being_made(self, harness: Harness, how: str) -> None:
        async with harness.service() as here:
            made: list[Job] = []
            for number in range(12):
                job = await here.create(harness.search(SCORE, along_x(trials=30, wide=4), f"search-{number}"))
                made.append(job)
                for _ in range(number):
                    await asyncio.sleep(0.005)
                await (here.jobs.delete if how == "delete" else here.jobs.stop)(ME, job.id)
            for job in made:
                await _gone(here, job.id)
                for trial in await here.store.trials.of(job.id):
                    assert trial.state in (TrialState.SUCCEEDED, TrialState.INFEASIBLE)
                    child = await here.store.job(trial.child)
                    assert child is not None
                    assert (child.live, bool(child.deleted)) == (False, how == "delete")

    async def test_a_trial_that_has_just_ended_by_itself_was_not_stopped(self, harness: Harness) -> None:
        harness.trial_runner = Slow
        Slow.go, Slow.here = asyncio.Event(), asyncio.Event()
        async with harness.service() as here:
            job = await here.create(harness.search(SCORE, along_x(trials=1)))
            view = await here.until(job.id, lambda job: job.state is State.RUNNING)
            await Slow.here.wait()
            (trial,) = await here.searches.trials(view)
            for _ in range(2):
                stopped = await here.searches.stop_trial(ME, view, trial.id)
                assert stopped.state is TrialState.STOPPING
            Slow.go.set()
            view = await here.ended(job.id)
            (trial,) = await here.searches.trials(view)
            assert (trial.state, trial.message) == (TrialState.SUCCEEDED, "")

    async def test_a_trial_can_be_stopped_twice_and_before_it_has_begun(self, harness: Harness) -> None:
        async with harness.service(overcommit=ONE_PLACE) as here:
            script = SCORE + f'trap "" TERM; if [ "$TRIAL" = 0 ]; then {until("go")} fi'
            job = await here.create(harness.search(script, along_x(trials=3)))
            view = await here.until(job.id, lambda job: job.state is State.RUNNING)
            first, second = await here.trials_until(view, lambda trials: len(trials) == 2)
            for trial in (first, first, second):
                await here.searches.stop_trial(ME, view, trial.id)
            (harness.shared / "go").touch()
            view = await here.ended(job.id)
            trials = await here.searches.trials(view)
            assert view.job.state is State.SUCCEEDED, view.job
            assert [one.state for one in trials] == [
                TrialState.SUCCEEDED,
                TrialState.INFEASIBLE,
                TrialState.SUCCEEDED,
            ]
            assert trials[1].started is None
            with pytest.raises(WrongState):
                await here.searches.stop_trial(ME, view, second.id)

    @pytest.mark.parametrize("number", [0, 2])
    @pytest.mark.parametrize("trouble", [NotFound, WrongState, Invalid])
    async def test_a_search_ends_if_a_trial_cannot_become_a_job(
        self, harness: Harness, number: int, trouble: type[NotFound | WrongState | Invalid]
    ) -> None:
        harness.trouble = {number: trouble("there is no pool p any more")}
        async with harness.service() as here:
            view, trials = await outcome(here, harness.search(SCORE, along_x(trials=4)))
            assert (view.job.state, view.job.reason) == (State.FAILED, Reason.REFUSED)
            assert view.job.message.startswith("there is no pool p any more")
            assert len(trials) == number

    async def test_a_trial_whose_job_is_deleted_is_over(self, harness: Harness) -> None:
        async with harness.service() as here:
            script = SCORE + f'if [ "$TRIAL" = 0 ]; then {until("go")} fi'
            job = await here.create(harness.search(script, along_x(trials=4)))
            view = await here.until(job.id, lambda job: job.state is State.RUNNING)
            trials = await here.trials_until(view, lambda trials: len(over(trials)) == 3)
            for trial in trials[:2]:
                await here.jobs.delete(ME, trial.child)
            view = await here.ended(job.id)
            trials = await here.searches.trials(view)
            assert view.job.state is State.SUCCEEDED
            assert [one.state for one in trials[1:]] == [TrialState.SUCCEEDED] * 3
            assert trials[0].message.startswith("deleted by alice")

    async def test_the_best_trial_is_named_however_it_ends(self, harness: Harness) -> None:
        harness.trouble = {2: NotFound("there is no pool p any more")}
        async with harness.service() as here:
            script = SCORE + f'if [ "$TRIAL" = 1 ]; then {until("go")} fi'
            view, trials = await outcome(here, harness.search(script, along_x(trials=4)))
            assert f"; best trial {trials[0].display_name} of 1" in view.job.message

    async def test_nobody_else_sees_it(self, harness: Harness) -> None:
        stranger = Caller("mallory", "other")
        async with harness.service() as here:
            view, trials = await outcome(here, harness.search(SCORE, along_x(trials=2)))
            for job_id in (view.job.id, *(one.child for one in trials)):
                with pytest.raises(NotFound):
                    await here.jobs.by_id(stranger, job_id)
            assert await here.jobs.count(stranger, Compare("id", ">", 0)) == 0
            children = await here.jobs.find(ME, Compare("scope", "=", f"trial:{view.job.id}"), Page(limit=9))
            assert {one.job.project for one in children} == {"p"}


class Slow(TrialJobs):
    """Reads the reports of a trial only when `go` is set."""

    go = asyncio.Event()
    here = asyncio.Event()

    async def lines(self, job: Job, cursor: str) -> tuple[list[tuple[int, str]], str, bool]:
        if not job.live:
            self.here.set()
            await self.go.wait()
        return await super().lines(job, cursor)


async def _gone(here: RunningService, job_id: int) -> None:
    with here.jobs.watch(job_id) as changed:
        async with asyncio.timeout(PATIENCE):
            while (job := await here.store.job(job_id)) and job.live:
                await changed.wait()
                changed.clear()
