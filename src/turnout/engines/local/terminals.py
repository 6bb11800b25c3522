"""Terminals: made here, opened by the keeper for a shell in a replica, and read and written here."""

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
from turnout.engines.local.account import Account
from turnout.errors import WrongState
from turnout.job import Attempt, ReplicaName, Size

_ANSWER_SECONDS = 10
_CODE_SECONDS = 2
_PIECE = 1 << 16
_MOST = 1000
"""Columns or rows: more makes programs fail that multiply them."""


class Shells:
    """Those that are open. `send` takes a message to the keeper."""

    def __init__(self, send: Callable[[object], None], account: Account) -> None:
        self._send = send
        self._account = account
        self._numbers = itertools.count(1)
        self._open: dict[int, LocalTerminal] = {}

    async def open(self, attempt: Attempt, replica: ReplicaName, size: Size) -> "LocalTerminal":
        """Raises WrongState or Unreachable."""
        number = next(self._numbers)
        ours, theirs = os.openpty()
        terminal = self._open[number] = LocalTerminal(ours, lambda: self._open.pop(number, None))
        try:
            if self._account.other:
                os.fchown(theirs, self._account.uid, -1)
            terminal.resize(size)
            tty = os.ttyname(theirs)
            self._send({"t": "shell", "id": number, "a": str(attempt), "name": str(replica), "tty": tty})
            async with asyncio.timeout(_ANSWER_SECONDS):
                trouble = await terminal.opened
        except BaseException as error:
            terminal.close()
            if isinstance(error, TimeoutError):
                raise Unreachable("the keeper did not answer; an older one may still be running") from None
            raise
        finally:
            # From now on its end is seen when the shell, and whatever it started, has let go of it.
            os.close(theirs)
        if trouble:
            terminal.close()
            raise WrongState(trouble)
        return terminal

    def heard(self, number: int, code: int | None, trouble: str) -> None:
        """The keeper has opened it, or could not, or it has ended with this code."""
        terminal = self._open.get(number)
        if terminal and code is not None:
            terminal.ended(code)
        elif terminal and not terminal.opened.done():
            terminal.opened.set_result(trouble)

    def close(self) -> None:
        for terminal in list(self._open.values()):
            terminal.close()


class LocalTerminal:
    def __init__(self, fd: int, let_go: Callable[[], object]) -> None:
        os.set_blocking(fd, False)
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[str] = loop.create_future()
        """Why it could not be; empty: it is."""
        self._fd = fd
        self._let_go = let_go
        self._code: asyncio.Future[int] = loop.create_future()

    async def read(self) -> bytes:
        while self._fd >= 0:
            try:
                return os.read(self._fd, _PIECE)
            except BlockingIOError:
                # What the shell has started may hold the terminal open for ever.
                if self._code.done():
                    return b""
            except OSError as error:
                if error.errno == errno.EIO:
                    return b""
                raise
            loop = asyncio.get_running_loop()
            await self._ready(loop.add_reader, loop.remove_reader)
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
                await self._ready(loop.add_writer, loop.remove_writer)
            except OSError:
                return  # it has ended, which `read` tells

    def resize(self, size: Size) -> None:
        columns, rows = (min(max(1, number), _MOST) for number in size)
        if self._fd >= 0:
            fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def code(self) -> int | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CODE_SECONDS):
                return await asyncio.shield(self._code)
        return None

    def ended(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    def close(self) -> None:
        self._let_go()
        if self._fd < 0:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._fd)
        loop.remove_writer(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._code.cancel()

    async def _ready(self, add: Callable[..., None], remove: Callable[[int], object]) -> None:
        """Or the shell has ended."""
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
