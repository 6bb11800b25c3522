"""A supervisor that keeps dying is started again with growing pauses."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.engines.local.harness import MASTER, TIMEOUT, EngineHarness
from turnout.engines import Unreachable
from turnout.engines.local.supervisor.backoff import Backoff
from turnout.engines.local.supervisor.client import SupervisorClient
from turnout.engines.local.supervisor.messages import Hello
from turnout.job import Cause, Ended, Policy, Synced

MONTHS = 100 * 86400.0


def test_the_first_restart_is_immediate_and_later_pauses_double():
    now = 0.0
    backoff = Backoff(lambda: now)
    pauses = []
    for _ in range(10):
        backoff.started()
        now += 0.1
        pauses.append(backoff.ended())
    assert pauses == [0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]
    backoff.started()
    now += 60
    assert backoff.ended() == 0


async def test_a_supervisor_that_keeps_dying_is_restarted_with_growing_pauses(
    unsandboxed: EngineHarness, monkeypatch: pytest.MonkeyPatch
):
    pauses: list[float] = []
    greeted, ended = SupervisorClient._received_hello, Backoff.ended

    def end_it(link: SupervisorClient, hello: Hello) -> bool:
        if len(pauses) < 4:
            os.kill(hello.pid, signal.SIGKILL)
        return greeted(link, hello)

    def note(backoff: Backoff) -> float:
        pauses.append(ended(backoff))
        return pauses[-1]

    monkeypatch.setattr(SupervisorClient, "_received_hello", end_it)
    monkeypatch.setattr(Backoff, "ended", note)
    await unsandboxed.kill_supervisor()
    await unsandboxed.wait(lambda report: isinstance(report, Synced))
    while len(pauses) < 4:
        unsandboxed.reports.clear()
        await unsandboxed.wait(lambda report: isinstance(report, Synced))
    assert pauses == [0, 0.05, 0.1, 0.2]
    assert (await run_when_connected(unsandboxed, "true")).code == 0


async def run_when_connected(harness: EngineHarness, *argv: str) -> Ended:
    """The last `Synced` may be from the connection that was just lost."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                return await harness.run(*argv)
            except Unreachable:
                await asyncio.sleep(0.05)


async def test_a_time_limit_of_months_works(harness: EngineHarness, base_dir: Path):
    """Also one from the journal of an earlier supervisor, and a grace period of months."""
    supervisor = harness.supervisor
    policy = Policy(time_limit=MONTHS, grace=MONTHS)
    attempt = await harness.start(
        "sh", "-c", "trap 'exit 3' TERM; echo on; while :; do sleep 0.01; done", policy=policy
    )
    await harness.wait_for_output(attempt, "on")
    assert (await harness.run("sh", "-c", "exit 7", policy=policy)).code == 7
    assert harness.supervisor == supervisor
    await harness.kill_supervisor()
    supervisor = harness.supervisor
    await harness.engine.stop(attempt, MONTHS)
    end = await harness.ended(attempt, MASTER)
    assert (end.cause, end.code) == (Cause.STOPPED, 3)
    assert harness.supervisor == supervisor
