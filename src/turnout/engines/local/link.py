"""The line to the keeper: finds it or starts it, sends to it, and hands on what it says."""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from turnout import chaos
from turnout.engines import Unreachable
from turnout.engines.local.account import Account
from turnout.errors import Misconfigured
from turnout.paths import Paths

VERSION = 1

_RUNNER = Path(__file__).parents[2] / "runner"
_START = "import sys; sys.path.insert(0, sys.argv[1]); from keeper.__main__ import main; main(sys.argv[2:])"


# Where the keeper finds what it inherits: far above anything that is open here, so that neither hides the other.
_LOCK, _LISTENER = 1000, 1001
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Hello(msgspec.Struct):
    version: int
    pid: int
    limits: str


class Claim(msgspec.Struct):
    a: str
    note: dict[str, tuple[str, tuple[int, ...]]]


class Said(msgspec.Struct):
    """One line from the keeper: exactly one of the fields is there."""

    hello: Hello | None = None
    claim: Claim | None = None
    started: tuple[str, str, int, int, int, int] | None = None
    ended: tuple[str, str, int, str, int | None, int | None, str] | None = None
    trimmed: tuple[str, str, int, str] | None = None
    grew: str | None = None
    synced: bool = False


class Link:
    """`heard` is called for each line; `lost` when the keeper is gone, after which `connect` is to be called again."""

    def __init__(
        self,
        paths: Paths,
        account: Account,
        sandbox: bool,
        heard: Callable[[Said], None],
        lost: Callable[[], None],
    ) -> None:
        self._paths = paths
        self._account = account
        self._sandbox = sandbox
        self._heard = heard
        self._lost = lost
        self._socket: socket.socket | None = None
        self._hello: asyncio.Future[None]
        self._child = 0
        self.keeper = 0
        self._decoder = msgspec.json.Decoder(Said)
        self._in = b""
        self._out = bytearray()

    @property
    def connected(self) -> bool:
        return self._socket is not None

    async def connect(self) -> None:
        """To the keeper that is there, or to a new one."""
        connection = self._dial() or await asyncio.to_thread(self._start)
        connection.setblocking(False)
        self._socket, self._in = connection, b""
        self._out.clear()
        asyncio.get_running_loop().add_reader(connection, self._receive)
        self._hello = asyncio.get_running_loop().create_future()
        self.send({"t": "hello", "version": VERSION})
        await self._hello

    def send(self, message: object) -> None:
        """At once, as far as the socket takes it: the caller's next line runs when the keeper can already read it."""
        if self._socket is None:
            raise Unreachable("the keeper is being started again")
        data = msgspec.json.encode(message) + b"\n"
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
        lock = os.open(self._paths.keeper / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Waits for a keeper that is just going.
            fcntl.flock(lock, fcntl.LOCK_EX)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as listener:
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

    def _spawn(self, lock: int, listener: int) -> None:
        if self._child:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._child, 0)
        uid, gid = (self._account.uid, self._account.gid) if self._account.other else (-1, -1)
        name = f"{zlib.crc32(os.fsencode(self._paths.data)):08x}"
        places = (str(_RUNNER), str(self._paths.keeper), str(self._paths.attempts))
        argv = [sys.executable, "-I", "-S", "-c", _START, *places, str(_LOCK), str(_LISTENER)]
        # Only the first: those after it are there to show that nothing was lost.
        kill_at = chaos.kill_at if chaos.kill_at.startswith("keeper.") and not self._child else ""
        argv += [str(uid), str(gid), name, "sandbox" if self._sandbox else "none", kill_at]
        log = str(self._paths.keeper / "log")
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, lock, _LOCK),
            (os.POSIX_SPAWN_DUP2, listener, _LISTENER),
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
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop()
            return
        *lines, self._in = (self._in + data).split(b"\n")
        for line in lines:
            said = self._decoder.decode(line)
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
