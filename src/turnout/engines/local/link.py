"""The line to the keeper: finds it or starts it, sends to it, and hands on what it says."""

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from turnout import chaos
from turnout.engines import Unreachable
from turnout.engines.local.account import Account
from turnout.errors import Misconfigured
from turnout.paths import Paths
from turnout.runner.allowance import Allowance

VERSION = 1

_RUNNER = Path(__file__).parents[2] / "runner"
_SOURCES = Path(__file__).parents[3]
_PUMP = "turnout.vault.pump"
_START = "import sys; sys.path.insert(0, sys.argv[1]); from keeper.__main__ import main; main(sys.argv[2:])"
_log = logging.getLogger(__name__)

_LOOK_AGAIN = 0.02
_GOING = 1.0
"""A keeper that is just going is gone by then."""
_STREAMS = 3
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Hello(msgspec.Struct):
    version: int
    pid: int
    limits: str


class Claim(msgspec.Struct):
    a: str
    note: dict[str, tuple[str, tuple[int, ...]]]
    allowance: Allowance | None = None


class StartedLine(msgspec.Struct, array_like=True):
    a: str
    name: str
    pid: int
    start: int
    at: int
    slot: int
    restarts: int = 0


class EndedLine(msgspec.Struct, array_like=True):
    a: str
    name: str
    at: int
    cause: str
    code: int | None
    signal: int | None
    message: str
    restarts: int = 0


class Said(msgspec.Struct):
    """One line from the keeper: at most one of the fields is there; what only it itself needs to know has none."""

    hello: Hello | None = None
    claim: Claim | None = None
    started: StartedLine | None = None
    ended: EndedLine | None = None
    trimmed: tuple[str, str, int, str] | None = None
    grew: str | None = None
    shell: tuple[int, int | None, str] | None = None
    synced: bool = False


class Link:
    """`keys`: there may be logs to seal. `heard` is called for each line; `lost` when the keeper is gone, after which
    `connect` is to be called again.
    """

    def __init__(
        self,
        paths: Paths,
        account: Account,
        sandbox: bool,
        open_files: int,
        keys: bool,
        heard: Callable[[Said], None],
        lost: Callable[[], None],
    ) -> None:
        self._paths = paths
        self._account = account
        self._sandbox = sandbox
        self._open_files = open_files
        self._keys = keys
        self._heard = heard
        self._lost = lost
        self._socket: socket.socket | None = None
        self._hello: asyncio.Future[None]
        self._child = 0
        self.keeper = 0
        self._decoder = msgspec.json.Decoder(Said)
        self._in: list[bytes] = []
        """The parts of a line whose end has not come."""
        self._held = b""
        self._out = bytearray()
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._socket is not None

    async def connect(self) -> None:
        """To the keeper that is there, or to a new one."""
        self._closed = False
        connection = self._dial() or await asyncio.to_thread(self._start)
        connection.setblocking(False)
        self._socket, self._in = connection, []
        self._held = b""
        self._out.clear()
        asyncio.get_running_loop().add_reader(connection, self._receive)
        self._hello = asyncio.get_running_loop().create_future()
        try:
            self.send({"t": "hello", "version": VERSION})
        except Unreachable:
            # The caller is told by this one: the other must not count as one that nobody has seen.
            self._hello.exception()
            raise
        await self._hello

    def send(self, message: object) -> None:
        """At once, as far as the socket takes it: the caller's next line runs when the keeper can already read it."""
        if self._socket is None:
            raise Unreachable("the keeper is being started again")
        self._send(self._held + msgspec.json.encode(message) + b"\n")

    def send_soon(self, message: object) -> None:
        """With the next, or when the caller has let go of the loop: nobody waits for it."""
        if self._socket is None:
            raise Unreachable("the keeper is being started again")
        if not self._held:
            asyncio.get_running_loop().call_soon(self._send_held)
        self._held += msgspec.json.encode(message) + b"\n"

    def _send_held(self) -> None:
        if self._held and self._socket is not None:
            with contextlib.suppress(Unreachable):
                self._send(self._held)

    def _send(self, data: bytes) -> None:
        assert self._socket
        self._held = b""
        if not self._out:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._drop()
                raise Unreachable("the keeper went away") from None
            if sent == len(data):
                return
            data = data[sent:]
            asyncio.get_running_loop().add_writer(self._socket, self._send_rest)
        self._out += data

    def close(self) -> None:
        self._closed = True
        if self._socket is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket)
            loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None

    def _dial(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            with self._short_path() as path:
                connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        return connection

    def _start(self) -> socket.socket:
        """The lock and the listening socket are made here and handed down: whoever holds the lock may be dialled."""
        lock = _above(os.open(self._paths.keeper / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        try:
            self._wait_for(lock)
            fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            with socket.socket(fileno=_above(fresh.detach())) as listener:
                with self._short_path() as path:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
                    listener.bind(path)
                    os.chmod(path, 0o600)
                listener.listen()
                self._spawn(lock, listener.fileno())
            connection = self._dial()
        finally:
            os.close(lock)
        if connection is None:
            raise Unreachable(f"the keeper did not start; see {self._paths.keeper / 'log'}")
        return connection

    def _wait_for(self, lock: int) -> None:
        """For a keeper that is just going; or for one that cannot be reached, because somebody removed its socket."""
        began, told = time.monotonic(), False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            if self._closed:
                raise Unreachable("the service ends")
            if not told and time.monotonic() - began > _GOING:
                told = True
                _log.warning(
                    "waiting for the keeper that is there (process %s) to end: it holds %s but does not listen at %s, "
                    "and no second one may begin before the jobs that it runs have ended",
                    os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown",
                    self._paths.keeper / "lock",
                    self._paths.keeper / "socket",
                )
            time.sleep(_LOOK_AGAIN)

    def _spawn(self, lock: int, listener: int) -> None:
        if self._child:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._child, 0)
        uid, gid = (self._account.uid, self._account.gid) if self._account.other else (-1, -1)
        name = f"{zlib.crc32(os.fsencode(self._paths.data)):08x}"
        places = (str(_RUNNER), str(self._paths.keeper), str(self._paths.attempts))
        argv = [sys.executable, "-I", "-S", "-c", _START, *places, str(lock), str(listener)]
        # Only the first: those after it are there to show that nothing was lost.
        kill_at = chaos.kill_at if chaos.kill_at.startswith("keeper.") and not self._child else ""
        argv += [
            str(uid),
            str(gid),
            name,
            "sandbox" if self._sandbox else "none",
            str(self._open_files),
            kill_at,
            _PUMP,
            os.pathsep.join([str(_SOURCES), *filter(None, sys.path)]),
            "keys" if self._keys else "none",
        ]
        log = str(self._paths.keeper / "log")
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            # To themselves: that is what makes a descriptor inherited by this child only.
            (os.POSIX_SPAWN_DUP2, lock, lock),
            (os.POSIX_SPAWN_DUP2, listener, listener),
        ]
        self._child = os.posix_spawn(
            sys.executable, argv, {}, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_RESET
        )

    @contextlib.contextmanager
    def _short_path(self) -> Iterator[str]:
        """The socket's path through a descriptor of its directory: paths of sockets are limited to 108 bytes."""
        directory = os.open(self._paths.keeper, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{directory}/socket"
        finally:
            os.close(directory)

    def _receive(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop()
            return
        first, *others = data.split(b"\n")
        self._in.append(first)
        if not others:
            return
        lines = [b"".join(self._in), *others[:-1]]
        self._in = [others[-1]]
        for line in lines:
            try:
                said = self._decoder.decode(line)
            except msgspec.DecodeError as error:
                _log.error("the keeper said what makes no sense: %s: %.200r", error, line)
                continue
            if said.hello and not self._greeted(said.hello):
                return
            self._heard(said)

    def _greeted(self, hello: Hello) -> bool:
        if hello.version == VERSION:
            self.keeper = hello.pid
            self._answer(None)
            return True
        self.close()
        self._answer(
            Misconfigured(
                f"a keeper of another version (process {hello.pid}) holds running jobs; "
                "let them end, or stop them with the version that started them"
            )
        )
        return False

    def _answer(self, trouble: Exception | None) -> None:
        if self._hello.done():
            return
        if trouble:
            self._hello.set_exception(trouble)
        else:
            self._hello.set_result(None)

    def _send_rest(self) -> None:
        if self._socket is None:
            return
        try:
            del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            return
        except OSError:
            self._drop()
            return
        if not self._out:
            asyncio.get_running_loop().remove_writer(self._socket)

    def _drop(self) -> None:
        self.close()
        if self._hello.done():
            self._lost()
        else:
            self._answer(Unreachable(f"the keeper went away at once; see {self._paths.keeper / 'log'}"))


def _above(fd: int) -> int:
    """The same file at a number that is none of the standard streams'."""
    if fd >= _STREAMS:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STREAMS)
    os.close(fd)
    return moved
