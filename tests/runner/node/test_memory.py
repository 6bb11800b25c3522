"""Whether the kernel killed a program for lack of memory."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.node.conftest import Start
from tests.runner.node.fake_gateway import FakeGateway
from turnout.runner.node import memory

ROOT = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup of 200 MB, below that of the tests."""
    own = next(
        (
            line.split(":")[2]
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if ":memory:" in line
        ),
        "",
    )
    group = ROOT / own.strip("/") / f"turnout-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(200 << 20))
    except OSError:
        pytest.skip("no memory cgroup can be made here")
    yield group
    for _ in range(100):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return


HUNGRY = "import time\ntime.sleep(0.2)\ndata = [bytearray(10_000_000) for _ in range(200)]"


@pytest.mark.parametrize("sandboxed", [False, True])
def test_a_kill_for_lack_of_memory_is_named(
    sandboxed: bool,
    gateway: FakeGateway,
    start_runner: Start,
    small_cgroup: Path,
    tmp_path: Path,
    without_sandbox: str,
):
    starter = tmp_path / "starter"
    starter.write_text(f'#!/bin/sh\necho $$ > {small_cgroup}/cgroup.procs\nexec /usr/bin/python3 "$@"\n')
    starter.chmod(0o755)
    gateway.plan = lambda arrival: {"argv": ["/usr/bin/python3", "-c", HUNGRY]}
    runner = start_runner(python=str(starter), **{} if sandboxed else {"PATH": without_sandbox})
    end = runner.wait_for_end()
    assert (end["cause"], end["signal"]) == ("out of memory", 9)
    assert end["message"]
    assert runner.finish() == 128 + 9


def test_counters_are_compared():
    assert memory.rose(0, 1)
    assert not memory.rose(1, 1)
    assert not memory.rose(None, 1)
    assert not memory.rose(1, None)


def test_the_counter_of_this_cgroup_is_read_where_there_is_one():
    found = memory.kills()
    assert found is None or found >= 0


@pytest.mark.parametrize("enforced", [True, False])
def test_a_limit_that_nobody_else_enforces(enforced: bool, gateway: FakeGateway, start_runner: Start):
    """All processes of the program count together."""
    program = "import time; x = bytes([1]) * (60 << 20); time.sleep({seconds})"
    both = f"{sys.executable} -c '{program}' & {sys.executable} -c '{program}'; wait"
    script = both.format(seconds=600 if enforced else 1)
    gateway.plan = lambda arrival: {"argv": ["/bin/sh", "-c", script], "memory": 100 << 20}
    runner = start_runner(**{"TURNOUT_ENFORCE_MEMORY": "1"} if enforced else {})
    end = runner.wait_for_end()
    if enforced:
        words = "it used more memory than the 100 MiB that it had asked for"
        assert (end["cause"], end["message"]) == ("out of memory", words)
    else:
        assert (end["cause"], end["code"]) == ("exit", 0)
    runner.finish()
