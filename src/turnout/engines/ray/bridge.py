"""The bridge as a child process of the service: started again whenever it ends, and asked by lines of JSON.

Nothing is lost with it: gangs are on the cluster, and every request may be repeated.
"""

import asyncio
import contextlib
import itertools
import json
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnout.engines import Refused, Unreachable
from turnout.engines.ray.settings import RaySettings

_log = logging.getLogger(__name__)

SECONDS = 30.0
"""How long a request may take. A bridge that does not answer is ended, and the next one finds everything."""
START_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
_NEXT_START = 2.0
_LONGEST_LINE = 64 << 20
_STOP_SECONDS = 3.0
_START = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); runpy.run_module('ray_bridge', run_name='__main__')"
)


class Bridge:
    def __init__(self, settings: RaySettings, changed: Callable[[], None], seconds: float = SECONDS) -> None:
        """`changed` is called when a replica has ended, and when a new bridge is ready."""
        self._settings = settings
        self._changed = changed
        self._seconds = seconds
        self._numbers = itertools.count(1)
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._ready = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._said: deque[str] = deque(maxlen=20)
        self.trouble = "the bridge to Ray is starting"
        """Why it cannot be asked at the moment."""
        self.versions = ""

    @property
    def command(self) -> list[str]:
        return [self._settings.python, "-c", _START, str(Path(__file__).parent), self._settings.address]

    async def open(self) -> None:
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        if self._keeping:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping

    async def ask(self, call: str, within: float | None = None, **arguments: Any) -> Any:
        """Raises Unreachable: no answer, so it may have been done or not. Raises Refused if Ray says no."""
        await self._wait_until_ready()
        process = self._process
        if process is None or process.stdin is None:
            raise Unreachable(self.trouble)
        number = next(self._numbers)
        reply = self._requests[number] = asyncio.get_running_loop().create_future()
        try:
            line = json.dumps({"id": number, "call": call, "arguments": arguments})
            with contextlib.suppress(ConnectionError):
                process.stdin.write(line.encode() + b"\n")
                await process.stdin.drain()
            async with asyncio.timeout(within or self._seconds):
                return await reply
        except TimeoutError:
            self._kill(process)
            raise Unreachable(f"Ray did not answer within {within or self._seconds:g} s") from None
        finally:
            del self._requests[number]

    async def _wait_until_ready(self) -> None:
        """Raises Unreachable: sooner if no bridge runs and the next start is not due yet."""
        try:
            async with asyncio.timeout(self._seconds if self._process else min(self._seconds, _NEXT_START)):
                await self._ready.wait()
        except TimeoutError:
            raise Unreachable(self.trouble) from None

    # The process.

    async def _keep(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                if await self._run():
                    pause = FIRST_PAUSE
            except OSError as error:
                self.trouble = f"{self._settings.python} cannot be run: {error.strerror}"
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _run(self) -> bool:
        """Runs a bridge until it ends. Returns whether it was ready."""
        process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(self._settings.environment),
            cwd="/",
            limit=_LONGEST_LINE,
            start_new_session=True,
        )
        self._process = process
        errors = asyncio.get_running_loop().create_task(self._read_errors(process))
        try:
            was_ready = await self._begin(process)
            if was_ready:
                await self._read(process)
                await self._end(process)
                self.trouble = f"the bridge to Ray ended: {self._words(process)}"
                _log.warning("%s; it is started again", self.trouble)
            return was_ready
        finally:
            self._ready.clear()
            self._process = None
            await self._end(process)
            errors.cancel()
            for reply in self._requests.values():
                if not reply.done():
                    reply.set_exception(Unreachable(self.trouble))

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self._kill(process)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()

    async def _begin(self, process: asyncio.subprocess.Process) -> bool:
        """Waits until the bridge has reached Ray, or has said why it cannot."""
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await process.stdout.readline()
        except TimeoutError:
            self.trouble = f"Ray at {self._settings.address} did not answer within {START_SECONDS:g} s"
            return False
        first = _decoded(line)
        if first.get("event") != "ready":
            words = first.get("message") or self._words(process)
            self.trouble = f"Ray: {words}"
            return False
        self.versions = f"Ray {first['ray']}, Python {first['python']}"
        self.trouble = ""
        self._ready.set()
        self._changed()
        return True

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            message = _decoded(line)
            if message.get("event") == "changed":
                self._changed()
            reply = self._requests.get(message.get("id", 0))
            if reply is None or reply.done():
                continue
            if "error" in message:
                reply.set_exception(_error(message["error"]))
            else:
                reply.set_result(message.get("result"))

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.readline():
            self._said.append(line.decode(errors="replace").strip())

    def _words(self, process: asyncio.subprocess.Process) -> str:
        said = [line for line in self._said if line]
        return said[-1][:500] if said else f"exit code {process.returncode}"

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_AGAIN = (
    "GCS",
    "gcs",
    "timed out",
    "Timed out",
    "RpcError",
    "connect",
    "unavailable",
    "not been initialized",
)


def _error(message: str) -> Refused | Unreachable:
    """A request that the cluster rejects is refused; anything about the connection may work later."""
    if any(part in message for part in _AGAIN):
        return Unreachable(f"Ray: {message[:500]}")
    return Refused(f"Ray: {message[:500]}")
