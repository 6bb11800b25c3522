"""A network that breaks in the middle of any call of a runner, between real runners and the real gateway."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.engines.conformance import starts
from tests.engines.remote.cutting_proxy import PLACES, CuttingProxy
from tests.engines.remote.harness import MASTER, TIMEOUT, RemoteHarness
from turnout.job import Cause, Mount, Saved, Size

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CALLS = {
    "claim", "arrive", "started", "tell", "wait", "ended", "saved",
    "stage", "GET", "PUT", "shell/input", "shell/output",
}  # fmt: skip
INPUTS = {f"in/{number}.bin": os.urandom(number * 50_000) for number in range(6)}
PROGRAM = """
import os, pathlib, signal, sys, time
def end(*_):
    print("bye", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
here, there = (pathlib.Path(os.environ[f"TURNOUT_MOUNT_{number}"]) for number in (0, 1))
with open(there / "runs", "a") as runs:
    runs.write("run\\n")
for path in here.iterdir():
    (there / path.name).write_bytes(path.read_bytes()[::-1])
for number in range(40_000):
    print(number)
    if number % 10_000 == 0:
        print("at", number, file=sys.stderr, flush=True)
        time.sleep(0.2)
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[tuple[RemoteHarness, CuttingProxy]]:
    remote = RemoteHarness(tmp_path)
    async with CuttingProxy(remote.port) as proxy:
        remote.runner_port = proxy.port
        async with remote:
            yield remote, proxy


@pytest.mark.parametrize("direction", ["request", "answer"])
@pytest.mark.parametrize("place", PLACES)
async def test_every_call_is_cut(network: tuple[RemoteHarness, CuttingProxy], direction: str, place: str):
    remote, proxy = network
    proxy.direction, proxy.place = direction, place
    bucket = remote.paths.buckets / "data"
    for key, data in INPUTS.items():
        (bucket / key).parent.mkdir(parents=True, exist_ok=True)
        (bucket / key).write_bytes(data)
    mounts = (
        Mount("s3://data/in/", "/in", read_only=True),
        Mount("s3://data/out/", "/out", fetch=False, output=True),
    )
    launch = remote.launch("python", "-c", PROGRAM, mounts=mounts)
    launch = msgspec.structs.replace(launch, spec=msgspec.structs.replace(launch.spec, shell=True))
    attempt = launch.attempt
    await remote.engine.start(launch)
    await remote.wait_for_output(attempt, "ready")
    assert "from the shell" in await in_shell(remote, launch)
    await remote.engine.stop(attempt, 20)
    end = await remote.ended(attempt)
    assert (end.cause, end.code) == (Cause.STOPPED, 7)
    assert remote.output(attempt) == "".join(f"{number}\n" for number in range(40_000)) + "ready\nbye\n"
    assert remote.output(attempt, stream=1) == "".join(f"at {n}\n" for n in range(0, 40_000, 10_000))
    assert len(starts(remote, attempt)) == 1
    await remote.engine.save(attempt)
    saved: Any = await remote.wait(lambda r: isinstance(r, Saved) and r.attempt == attempt)
    assert saved.trouble == ""
    files = {str(path.relative_to(bucket)): path.read_bytes() for path in bucket.rglob("*") if path.is_file()}
    made = {key.replace("in/", "out/"): data[::-1] for key, data in INPUTS.items()}
    assert files == {**INPUTS, **made, "out/runs": b"run\n"}
    assert set(proxy.cuts) == set(proxy.calls) == CALLS


async def in_shell(remote: RemoteHarness, launch: Any) -> str:
    terminal = await remote.engine.shell(launch.attempt, MASTER, Size(100, 30))
    await terminal.write(b'echo from the "shell"; exit 5\n')
    said = b""
    async with asyncio.timeout(TIMEOUT):
        while data := await terminal.read():
            said += data
    assert await terminal.code() == 5
    return said.decode()
