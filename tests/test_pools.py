"""Thread pools for work that would block the event loop."""

import asyncio
import subprocess
import sys
import threading

import pytest

from turnout.errors import TimedOut
from turnout.pools import ThreadPool


async def test_run_returns_the_result_or_raises_the_error() -> None:
    pool = ThreadPool("test", 2, 1)
    assert await pool.run("a", divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await pool.run("a", divmod, 7, 0)


async def test_projects_take_turns() -> None:
    pool = ThreadPool("test", 1, 1)
    order: list[str] = []
    begun, gate = threading.Event(), threading.Event()
    first = asyncio.create_task(pool.run("a", lambda: (begun.set(), gate.wait())))
    await asyncio.sleep(0)
    begun.wait()
    rest = [asyncio.create_task(pool.run(name, order.append, name)) for name in "aaabbc"]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *rest)
    assert "".join(order) == "abcaba"


async def test_one_project_cannot_use_all_threads() -> None:
    pool = ThreadPool("test", 3, 2)
    gate = threading.Event()
    stuck = [asyncio.create_task(pool.run("a", gate.wait)) for _ in range(8)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(pool.run("b", int, "7"), 20) == 7
    assert not any(task.done() for task in stuck)
    gate.set()
    await asyncio.gather(*stuck)


async def test_a_cancelled_call_is_not_run() -> None:
    pool = ThreadPool("test", 1, 1)
    gate = threading.Event()
    done: list[int] = []
    first = asyncio.create_task(pool.run("a", gate.wait))
    await asyncio.sleep(0)
    cancelled = [asyncio.create_task(pool.run("a", done.append, n)) for n in range(3)]
    await asyncio.sleep(0)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)
    gate.set()
    await first
    await pool.run("a", done.append, 9)
    assert done == [9]


async def test_a_call_that_waits_for_a_stuck_thread_times_out_and_others_go_on() -> None:
    pool = ThreadPool("test", 2, 1)
    gate = threading.Event()
    with pytest.raises(TimedOut, match="no answer within"):
        await pool.run_within(0.01, "a", gate.wait)
    assert await pool.run("b", int, "7") == 7
    gate.set()
    assert await pool.run("a", int, "8") == 8


async def test_post_does_not_wait() -> None:
    pool = ThreadPool("test", 1, 1)
    done = threading.Event()
    pool.post("a", done.set)
    await pool.run("a", int, "7")
    assert done.is_set()


def test_a_stuck_thread_does_not_keep_the_process_alive() -> None:
    program = """
import asyncio, threading
from turnout import pools
pools._LEAVE_SECONDS = 0.2

async def main():
    stuck = asyncio.create_task(pools.mounts.run("server", threading.Event().wait))
    await asyncio.sleep(0.01)
    stuck.cancel()
    await pools.close()

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
