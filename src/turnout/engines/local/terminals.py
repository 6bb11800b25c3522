"""Terminals of shells in replicas. The service makes the terminal, and the supervisor starts a shell on it."""

import asyncio
import contextlib
import errno
import fcntl
import itertools
import os
import struct
import termios
from collections.abc import Callable

from turnout.engines import Unreachable
from turnout.engines.local.supervisor import messages
from turnout.errors import WrongState
from turnout.job import Attempt, ReplicaName, Size

_REPLY_SECONDS = 10
_EXIT_CODE_SECONDS = 2
_CHUNK = 1 << 16
_LARGEST = 1000
"""Columns or rows. Some programs multiply them, and fail if there are more."""


class Terminals:
    """`send` takes a message to the supervisor."""

    def __init__(self, send: Callable[[object], None], uid: Callable[[Attempt], int | None]) -> None:
        """`uid`: the user of an attempt's processes; None: the service's own."""
        self._send = send
        self._uid = uid
        self._numbers = itertools.count(1)
        self._open: dict[int, LocalTerminal] = {}

    async def open(self, attempt: Attempt, replica: ReplicaName, size: Size) -> "LocalTerminal":
        """Raises WrongState or Unreachable."""
        number = next(self._numbers)
        master, slave = os.openpty()
        terminal = self._open[number] = LocalTerminal(master, lambda: self._open.pop(number, None))
        try:
            if (uid := self._uid(attempt)) is not None:
                os.fchown(slave, uid, -1)
            terminal.resize(size)
            tty = os.ttyname(slave)
            self._send(messages.open_shell(number, attempt, replica, tty))
            async with asyncio.timeout(_REPLY_SECONDS):
                error = await terminal.opened
        except BaseException as failure:
            terminal.close()
            if isinstance(failure, TimeoutError):
                raise Unreachable(
                    "the supervisor did not answer; an older one may still be running"
                ) from None
            raise
        finally:
            # So `read` sees the end when the shell, and whatever it started, has closed the terminal.
            os.close(slave)
        if error:
            terminal.close()
            raise WrongState(error)
        return terminal

    def received(self, number: int, code: int | None, error: str) -> None:
        """The shell runs, or could not be started because of the error, or has ended with this code."""
        terminal = self._open.get(number)
        if terminal and code is not None:
            terminal.ended(code)
        elif terminal and not terminal.opened.done():
            terminal.opened.set_result(error)

    def close(self) -> None:
        for terminal in list(self._open.values()):
            terminal.close()


class LocalTerminal:
    def __init__(self, fd: int, on_close: Callable[[], object]) -> None:
        os.set_blocking(fd, False)
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[str] = loop.create_future()
        """The result says why the shell could not be started; empty: it runs."""
        self._fd = fd
        self._on_close = on_close
        self._code: asyncio.Future[int] = loop.create_future()

    async def read(self) -> bytes:
        while self._fd >= 0:
            try:
                return os.read(self._fd, _CHUNK)
            except BlockingIOError:
                # Programs that the shell started may keep the terminal open for ever.
                if self._code.done():
                    return b""
            except OSError as error:
                if error.errno == errno.EIO:
                    return b""
                raise
            loop = asyncio.get_running_loop()
            await self._wait(loop.add_reader, loop.remove_reader)
        return b""

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and self._fd >= 0:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                if self._code.done():
                    return
                loop = asyncio.get_running_loop()
                await self._wait(loop.add_writer, loop.remove_writer)
            except OSError:
                return  # the shell has ended: `read` returns that

    def resize(self, size: Size) -> None:
        columns, rows = (min(max(1, number), _LARGEST) for number in size)
        if self._fd >= 0:
            fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def code(self) -> int | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_CODE_SECONDS):
                return await asyncio.shield(self._code)
        return None

    def ended(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    def close(self) -> None:
        self._on_close()
        if self._fd < 0:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._fd)
        loop.remove_writer(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._code.cancel()

    async def _wait(self, add: Callable[..., None], remove: Callable[[int], object]) -> None:
        """Waits until the terminal is ready, or the shell has ended."""
        fd, ready = self._fd, asyncio.Event()
        wake = lambda _: ready.set()  # noqa: E731
        add(fd, ready.set)
        self._code.add_done_callback(wake)
        try:
            await ready.wait()
        finally:
            self._code.remove_done_callback(wake)
            if self._fd == fd:
                remove(fd)
