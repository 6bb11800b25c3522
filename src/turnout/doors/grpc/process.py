"""The process beside the service: started with it, started again when it dies, ended with it."""

import asyncio
import contextlib
import importlib.util
import logging
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from turnout.doors.grpc.orders import Orders
from turnout.errors import Misconfigured

_log = logging.getLogger(__name__)

_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from turnout.doors.grpc.__main__ import main; main()"
)
COMMAND = (sys.executable, "-P", "-c", _START, str(Path(__file__).parents[3]))

_NEEDED = ("grpc", "google.cloud.aiplatform_v1", "httpcore")
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Before it is started again: longer each time, unless it had been well for a minute."""
_WELL_SECONDS = 60
_GOODBYE_SECONDS = 3


def check() -> None:
    """Raises Misconfigured unless everything that the process needs is installed."""
    missing = [name for name in _NEEDED if not _installed(name)]
    if missing:
        raise Misconfigured(
            f"[grpc] port needs Python packages that are not installed ({', '.join(missing)}): "
            "run pip install 'turnout[grpc]', or leave the setting out"
        )


@contextlib.asynccontextmanager
async def beside(orders: Orders) -> AsyncGenerator[None]:
    """Runs the process for as long as the block lasts."""
    keeping = asyncio.create_task(_keep(orders), name="grpc")
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


async def _keep(orders: Orders) -> None:
    failures = 0
    while True:
        started = time.monotonic()
        fate = await _run(orders)
        failures = 0 if time.monotonic() - started > _WELL_SECONDS else failures
        pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
        failures += 1
        _log.error("the gRPC process %s; it is started again in %.0f s", fate, pause)
        await asyncio.sleep(pause)


async def _run(orders: Orders) -> str:
    """What became of it."""
    try:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, stdin=asyncio.subprocess.PIPE, cwd="/", start_new_session=True
        )
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    assert process.stdin
    try:
        process.stdin.write(msgspec.json.encode(orders) + b"\n")
        code = await process.wait()
    except BaseException:
        await _end(process)
        raise
    return f"was killed by signal {-code}" if code < 0 else f"ended with {code}"


async def _end(process: asyncio.subprocess.Process) -> None:
    """It goes when its input ends, as it does when the service is killed."""
    assert process.stdin
    process.stdin.close()
    try:
        async with asyncio.timeout(_GOODBYE_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
