"""Starts a child process on demand, sends it requests as lines of JSON, and starts it again when it dies."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from turnout.child_processes.bootstrap import Identity, Reply, Setup
from turnout.errors import TurnoutError

_STABLE_SECONDS = 60
_log = logging.getLogger(__name__)


class ChildDied(TurnoutError):
    """The child ended before it replied. The message says how."""


class Closed(TurnoutError):
    """The child was closed, because the service is shutting down."""


class ChildProgram(msgspec.Struct, frozen=True):
    """What a child runs: a function without arguments."""

    name: str
    """Its name in logs and messages: `search process`."""
    module: str
    function: str = "main"
    sources: str = str(Path(__file__).parents[2])
    """The directory to import the module from."""
    isolated: bool = True
    """Whether the interpreter ignores PYTHON* variables and the user's site-packages."""
    environment: Mapping[str, str] | None = None
    """The whole environment; None: that of the service."""
    quiet: bool = False
    """Whether its stderr is discarded; otherwise it inherits the service's."""
    longest_line: int = 1 << 20
    """A longer reply kills the child."""
    cancels: bool = False
    """Whether it understands `{"id": …, "cancel": true}`, which is sent when the caller of a request is cancelled."""

    @property
    def command(self) -> tuple[str, ...]:
        run = f"from {self.module} import {self.function} as run; run()"
        start = f"import sys; sys.path.insert(0, sys.argv.pop(1)); {run}"
        return sys.executable, "-I" if self.isolated else "-P", "-c", start, self.sources


R = TypeVar("R", bound=Reply)


class Child(Generic[R]):
    """Runs at most one process at a time; the next starts after the last has ended.

    When a process ends, its open requests fail with ChildDied. A reply never answers a request to another process.
    """

    def __init__(
        self,
        program: ChildProgram,
        replies: type[R],
        setup: Setup | None = None,
        *,
        identity: Identity | None = None,
        inherits: tuple[int, ...] = (),
        idle: float | None = None,
        grace: float = 1.0,
        pauses: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0),
        progress: Callable[[R], None] = lambda _: None,
    ) -> None:
        """`inherits`: descriptors that the process gets under the same numbers. `idle`: seconds without a request after
        which it ends; None: never. `progress`: called with replies that are not the last.

        `grace`: seconds that it gets to end by itself after its input was closed. `pauses`: seconds before each restart
        after a death; they start over after a reply, or after a minute of running.
        """
        self._program = program
        self._decoder = msgspec.json.Decoder(replies)
        self._setup = setup or Setup()
        self._identity = identity
        self._inherits = inherits
        self._idle = idle
        self._grace = grace
        self._pauses = pauses
        self._progress = progress
        self._process: _Process[R] | None = None
        self._starting = asyncio.Lock()
        self._deaths = 0
        self._count = 0
        self._users = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closed = asyncio.Event()
        self._ending: asyncio.Task[str] | None = None

    @property
    def pid(self) -> int | None:
        """The id of the running process."""
        return self._process.pid if self._process and not self._process.over else None

    async def start(self) -> object:
        """Start the process if it does not run. Raises ChildDied if it cannot be started, and Closed.

        The result identifies the process: a later one has none of its state.
        """
        with self._in_use():
            return await self._running()

    async def request(self, body: Mapping[str, Any] | msgspec.Struct, tries: int = 1) -> R:
        """Returns the reply. Raises ChildDied when the process has ended `tries` times, and Closed."""
        with self._in_use():
            while True:
                tries -= 1
                try:
                    return await self._request(await self._running(), body)
                except ChildDied:
                    if tries <= 0:
                        raise

    async def keep_running(self) -> None:
        """Keep the process running until `close`, starting it again whenever it dies."""
        with self._in_use(), contextlib.suppress(Closed):
            while True:
                with contextlib.suppress(ChildDied):
                    await (await self._running()).gone()

    async def kill(self) -> str:
        """Kill the process, if there is one; the next request starts another. Returns how it ended."""
        if self._process is None:
            return "never ran"
        return await self._process.end(0)

    async def close(self) -> None:
        """End the process for good. Open requests fail with Closed."""
        self._closed.set()
        if self._idle_timer:
            self._idle_timer.cancel()
        if self._process:
            await self._process.end(self._grace)
        # A start that was under way sees `_closed` and ends.
        async with self._starting:
            if self._process:
                await self._process.end(self._grace)

    async def _request(self, process: "_Process[R]", body: Mapping[str, Any] | msgspec.Struct) -> R:
        self._count += 1
        try:
            reply = await process.request(self._count, body, cancels=self._program.cancels)
        except ChildDied:
            if self._closed.is_set():
                raise self._end_of_service() from None
            raise
        self._deaths = 0
        return reply

    async def _running(self) -> "_Process[R]":
        async with self._starting:
            if self._process is not None and self._process.closing:
                await self._reap(self._process)
            if self._process is None and not self._closed.is_set():
                await self._pause()
            if self._closed.is_set():
                raise self._end_of_service()
            if self._process is None:
                await self._start()
                assert self._process
            return self._process

    async def _reap(self, process: "_Process[R]") -> None:
        how = await process.end(self._grace)
        self._process = None
        if process.expected_to_end:
            return
        self._deaths = 1 if process.lived > _STABLE_SECONDS else self._deaths + 1
        _log.warning("the %s %s and is started again", self._program.name, how)

    async def _pause(self) -> None:
        if self._deaths:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pauses[min(self._deaths, len(self._pauses)) - 1]):
                    await self._closed.wait()

    async def _start(self) -> None:
        """A cancelled caller still waits for the start, so that no process is left untracked."""
        spawning = asyncio.ensure_future(self._spawn())
        try:
            self._process = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            with contextlib.suppress(ChildDied):
                self._process = await spawning
            raise

    async def _spawn(self) -> "_Process[R]":
        program = self._program
        try:
            process = await asyncio.create_subprocess_exec(
                *program.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL if program.quiet else None,
                limit=program.longest_line,
                cwd="/",
                env=program.environment,
                pass_fds=self._inherits,
                start_new_session=True,
            )
        except OSError as error:
            self._deaths += 1
            raise ChildDied(f"the {program.name} cannot be started: {error.strerror}") from None
        user = self._identity
        ids = {"uid": user.uid, "gid": user.gid, "groups": list(user.groups)} if user else {}
        setup = msgspec.structs.replace(self._setup, parent=os.getpid(), **ids)
        return _Process(process, self._decoder, program.name, self._grace, setup, self._progress)

    def _end_of_service(self) -> Closed:
        return Closed(f"the {self._program.name} has ended with the service")

    @contextlib.contextmanager
    def _in_use(self) -> Generator[None]:
        self._users += 1
        if self._idle_timer:
            self._idle_timer.cancel()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users and self._idle is not None and not self._closed.is_set():
                self._idle_timer = asyncio.get_running_loop().call_later(self._idle, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self._process and not self._users:
            self._ending = asyncio.ensure_future(self._process.end(self._grace))


class _Process(Generic[R]):
    """One started process."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        decoder: "msgspec.json.Decoder[R]",
        name: str,
        grace: float,
        setup: Setup,
        progress: Callable[[R], None],
    ) -> None:
        assert process.stdin
        self._process = process
        self._input = process.stdin
        self._decoder = decoder
        self._name = name
        self._grace = grace
        self._progress = progress
        self._waiting: dict[int, asyncio.Future[R]] = {}
        self._started = time.monotonic()
        self.closing = False
        """Its input was closed, or it has ended: it takes no more requests."""
        self.expected_to_end = False
        self._send(setup)
        self._gone = asyncio.create_task(self._run(), name=name)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def over(self) -> bool:
        return self._gone.done()

    @property
    def lived(self) -> float:
        return time.monotonic() - self._started

    async def gone(self) -> str:
        """Wait for its end; returns how it ended."""
        return await asyncio.shield(self._gone)

    async def request(self, number: int, body: Mapping[str, Any] | msgspec.Struct, *, cancels: bool) -> R:
        """Raises ChildDied."""
        if self.closing:
            raise ChildDied(f"the {self._name} {await self.gone()}")
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({**msgspec.to_builtins(body), "id": number})
            with contextlib.suppress(ConnectionError):  # its end fails `answer`
                await self._input.drain()
            return await answer
        except asyncio.CancelledError:
            if cancels and not answer.done():
                self._send({"id": number, "cancel": True})
            raise
        finally:
            del self._waiting[number]

    async def end(self, seconds: float) -> str:
        """Give it `seconds` to end by itself, then kill it. Returns how it ended."""
        self.expected_to_end = self.expected_to_end or not self.closing
        self._close_input()
        try:
            async with asyncio.timeout(seconds):
                return await self.gone()
        except TimeoutError:
            self._kill()
            return await self.gone()

    def _close_input(self) -> None:
        """A child ends when its input ends."""
        self.closing = True
        self._input.close()

    async def _run(self) -> str:
        try:
            await self._read_replies()
        except Exception:  # noqa: BLE001 - whatever it wrote, its open requests must fail
            _log.exception("the %s wrote an invalid reply", self._name)
            self._kill()
        self._close_input()
        how = _how_it_ended(await self._exit_code())
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ChildDied(f"the {self._name} {how}"))
        return how

    async def _read_replies(self) -> None:
        assert self._process.stdout
        while line := await self._process.stdout.readline():
            if not line.endswith(b"\n"):
                return  # it died while it wrote this
            reply = self._decoder.decode(line)
            answer = self._waiting.get(reply.id)
            if answer is None or answer.done():
                continue
            if reply.last:
                answer.set_result(reply)
            else:
                self._progress(reply)

    async def _exit_code(self) -> int:
        """Call it when the output has ended. A process that has not exited after the grace period is killed."""
        try:
            async with asyncio.timeout(self._grace):
                return await self._process.wait()
        except TimeoutError:
            self._kill()
            return await self._process.wait()

    def _send(self, message: Mapping[str, Any] | msgspec.Struct) -> None:
        if not self._input.is_closing():
            self._input.write(msgspec.json.encode(message) + b"\n")

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
