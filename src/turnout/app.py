"""The wiring: opens the rooms in order, serves them on one port, and closes them again."""

import asyncio
import contextlib
import fcntl
import logging
import os
import pwd
import signal
import socket
import stat
import sys
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware

from turnout import __version__, config
from turnout.access import Key, Keys, open_root_key
from turnout.config import Settings
from turnout.control import Control
from turnout.control.sweep import keep_swept
from turnout.dialects import native, tia
from turnout.engines.local import LocalEngine
from turnout.engines.local.account import Account, job_user
from turnout.engines.local.interpreters import host_python
from turnout.errors import Misconfigured
from turnout.paths import Paths
from turnout.service import Jobs, Logs
from turnout.storage import Storage
from turnout.store import Store
from turnout.web import LocalPeersOnly, page
from turnout.web import routes as status_routes

log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Run the service until it is told to stop. Jobs that run go on without it."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    config.prepare_chaos()
    paths = prepare_data(settings)
    with contextlib.ExitStack() as held:
        held.enter_context(lock(paths))
        keys = Keys(open_root_key(paths.root_key, settings.root_key))
        listener = held.enter_context(listen(settings))
        server = _Server(
            uvicorn.Config(
                build(settings, paths, keys),
                loop="uvloop",
                http="httptools",
                ws="none",
                lifespan="off",  # the server opens the rooms itself: what is wrong with them is one line, no traceback
                access_log=False,
                log_level="warning",
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
            )
        )
        server.welcome = _welcome(settings, keys.root, listener.getsockname()[1], paths)
        server.run([listener])


def build(settings: Settings, paths: Paths, keys: Keys) -> Starlette:
    """The application. Its rooms are opened when it starts up and closed when it shuts down."""
    clusters = {name: cluster.engine for name, cluster in settings.all_clusters().items()}
    started = time.monotonic()
    app = Starlette(middleware=[Middleware(LocalPeersOnly)] if settings.no_auth else [])

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        store = Store.open(settings.store.url, paths.database)
        user = await asyncio.to_thread(job_user, settings.engines.local.user)
        owner = (user.uid, user.gid) if os.geteuid() == 0 else None
        storage = Storage(paths.buckets, settings.host_paths(), paths.data, owner)
        engines = {"local": LocalEngine(paths, settings, storage)}
        control = Control(store, engines, clusters)
        app.state.leaving = control.hub.close
        jobs = Jobs(store, control, clusters)
        logs = Logs(jobs)
        app.router.routes += [
            *tia.routes(jobs, logs, keys, settings, storage, started, settings.no_auth, page),
            *native.routes(jobs, logs, keys, settings),
            *status_routes(jobs),
        ]
        for engine in engines.values():
            await engine.open()
        await control.start()
        sweeping = asyncio.create_task(keep_swept(store, engines, settings.limits.log_days), name="sweep")
        try:
            yield
        finally:
            sweeping.cancel()
            await control.close()
            for engine in engines.values():
                await engine.close()
            await store.close()

    app.router.lifespan_context = lifespan
    return app


class _Server(uvicorn.Server):
    """Sleeps until it is told to stop, where uvicorn looks ten times a second, and lets go of clients that wait."""

    def __init__(self, configuration: uvicorn.Config) -> None:
        super().__init__(configuration)
        self.welcome = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = asyncio.Event()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        app: Starlette = self.config.app  # type: ignore[assignment]
        async with app.router.lifespan_context(app):
            sys.stdout.write(self.welcome)
            sys.stdout.flush()
            await super().serve(sockets)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._told.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        if self._loop:
            self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self.config.app.state.leaving()  # type: ignore[union-attr]
        self._told.set()


def job_interpreter(settings: Settings) -> str:
    """What programs get whose runtime the settings do not name. Looks only: a missing user is not made."""
    name = settings.engines.local.user
    try:
        pwd.getpwnam(name)
        account = job_user(name)
    except KeyError:
        account = Account(name, -1, -1, other=True) if os.geteuid() == 0 else job_user(name)
    found = host_python(account)
    return f"Python {found.version} ({found.path})"


def prepare_data(settings: Settings) -> Paths:
    """Make the data directory. Root's is passable for the job's user, whose own directories lie in it."""
    paths = Paths(settings.data)
    try:
        paths.data.mkdir(parents=True, exist_ok=True)
        wanted = 0o711 if os.geteuid() == 0 else 0o700
        if stat.S_IMODE(paths.data.stat().st_mode) != wanted:
            paths.data.chmod(wanted)
    except OSError as error:
        raise Misconfigured(f"the data directory {paths.data} cannot be used: {error.strerror}") from None
    return paths


@contextlib.contextmanager
def lock(paths: Paths) -> Generator[None]:
    """Keeps a second service off the same data directory."""
    with open(paths.lock, "a+", opener=_private) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise Misconfigured(
                f"another turnout serve ({holder}) uses {paths.data}: stop it first, or give --data another directory"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield


@contextlib.contextmanager
def listen(settings: Settings) -> Generator[socket.socket]:
    """The socket, bound before anything is started, so that a port that is taken is told at once."""
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(2048)
        except OSError as error:
            raise Misconfigured(
                f"cannot listen on {host}:{port}: {error.strerror}; give --port another number"
            ) from None
        yield listener


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _welcome(settings: Settings, root: Key, port: int, paths: Paths) -> str:
    host = f"[{settings.server.host}]" if ":" in settings.server.host else settings.server.host
    endpoint = f"http://{host}:{port}"
    key = "not needed (--no-auth)" if settings.no_auth else f"{root.id}:{root.secret}"
    tictl = Path(sys.argv[0]).with_name("tictl")
    return f"""\
Turnout {__version__} listens on {endpoint}
  root key   {key}
  data       {paths.data}

Submit a first job, from another terminal:
  export TURNOUT_ENDPOINT={endpoint} TURNOUT_KEY={root.id}:{root.secret}
  {tictl} job create hello -r ap-beijing -c ap-beijing --command "echo hello, world" --wait
  {tictl} logs hello -r ap-beijing -c ap-beijing
"""
