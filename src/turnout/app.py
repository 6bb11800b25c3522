"""The wiring: opens the rooms in order, serves them on one port, and closes them again."""

import asyncio
import contextlib
import errno
import fcntl
import gc
import logging
import os
import pwd
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any, cast

import msgspec
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout import __version__, config
from turnout.access import Key, Keys, open_root_key
from turnout.config import Settings
from turnout.control import Control
from turnout.control.sweep import keep_swept
from turnout.dialects import modelarts, native, tia, vertex
from turnout.doors import gcs, grpc
from turnout.engines.local import LocalEngine
from turnout.engines.local.account import Account, job_user
from turnout.engines.local.interpreters import ask, host_python
from turnout.errors import Misconfigured
from turnout.job import State
from turnout.paths import Paths
from turnout.search import Conductor, missing_packages
from turnout.service import Assets, Jobs, Logs, Objects, Searches, TrialJobs
from turnout.storage import Backing, Remote, Storage
from turnout.storage.remote import check as check_backing
from turnout.store import Store
from turnout.vault import KeyRing
from turnout.web import (
    Dashboards,
    Gate,
    LimitedProtocol,
    LocalPeersOnly,
    Shells,
    Visits,
    page,
    refusal_of,
    tls,
)
from turnout.web import routes as status_routes

_LARGEST_MESSAGE = 256 << 10
"""What a browser may send in one piece through a WebSocket."""


def serve(settings: Settings) -> None:
    """Run the service until it is told to stop. Jobs that run go on without it."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    config.prepare_chaos()
    check(settings)
    with contextlib.ExitStack() as opened:
        listeners = [opened.enter_context(listen(settings.server.host, settings.server.port))]
        if settings.storage.s3.port:
            s3 = listen(settings.server.host, settings.storage.s3.port, "[storage.s3] port")
            listeners.append(opened.enter_context(s3))
        if settings.grpc.port:
            # Its own process takes the port; that somebody else has it is told at once.
            with listen(settings.server.host, settings.grpc.port, "[grpc] port"):
                pass
        paths = prepare_data(settings)
        with lock(paths):
            keys = Keys(open_root_key(paths.root_key, settings.root_key))
            uvloop.run(_serve(settings, paths, keys, listeners))


async def _serve(settings: Settings, paths: Paths, keys: Keys, listeners: list[socket.socket]) -> None:
    port = listeners[0].getsockname()[1]
    async with house(settings, paths, keys) as (app, leave, counts), _grpc(settings, port):
        # What is there by now stays for good; young garbage is what a request leaves behind, mostly without cycles.
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        sys.stdout.write(_welcome(settings, keys.root, port, paths))
        sys.stdout.flush()
        await _Server(_uvicorn(app, settings), leave).serve(listeners)
        with contextlib.suppress(OSError):  # whoever read the welcome may have gone
            sys.stdout.write(_farewell(counts().get(State.RUNNING, 0)))
            sys.stdout.flush()


@contextlib.asynccontextmanager
async def house(
    settings: Settings, paths: Paths, keys: Keys
) -> AsyncGenerator[tuple[ASGIApp, Callable[[], None], Callable[[], dict[str, int]]]]:
    """All rooms, open: the application, what lets go of everyone who waits, and what counts jobs by state."""
    clusters = {name: cluster.engine for name, cluster in settings.all_clusters().items()}
    ring = await asyncio.to_thread(_open_ring, settings)
    store = Store.open(settings.store.url, paths.database, ring)
    await keys.open(store)
    user = await asyncio.to_thread(job_user, settings.engines.local.user)
    owner = (user.uid, user.gid) if os.geteuid() == 0 else None
    storage = Storage(
        paths.buckets, settings.host_paths(), paths.data, owner, user.blocked, _remote(settings), ring
    )
    engines = {"local": LocalEngine(paths, settings, storage, ring)}
    control = Control(store, engines, clusters)
    storage.embedded.mounted = control.mounted
    jobs = Jobs(store, control, clusters)
    logs = Logs(jobs)
    gate = Gate(keys, settings.no_auth)
    dashboards = Dashboards(jobs, gate, settings.server.host, settings.tls_files)
    visits = Visits(jobs, gate, dashboards)
    front = tia.endpoint(jobs, logs, keys, settings, storage, time.monotonic(), settings.no_auth, page)
    objects = Objects(storage)
    trial_jobs = {"modelarts": modelarts.trial_jobs(settings), "vertex": vertex.trial_jobs(settings)}
    conductor = Conductor(store, TrialJobs(jobs, logs, control, trial_jobs), paths.search)
    control.conduct = conductor.take
    searches = Searches(store, control, conductor)
    rooms = modelarts.House(
        jobs, logs, Assets(store), keys, settings, storage, time.time_ns, objects, searches
    )
    huawei = modelarts.Endpoint(rooms)
    google = vertex.Endpoint(
        vertex.House(jobs, logs, keys, settings, storage, time.time_ns, visits.uris, searches)
    )
    rest = Starlette(
        routes=[
            *native.routes(jobs, logs, searches, objects, keys, settings, visits.uris),
            *Shells(jobs, gate).routes(),
            modelarts.link_route(rooms),
            *status_routes(jobs),
            *gcs.routes(storage.embedded, keys, settings, refusal_of),
        ]
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # The clouds' catch everything themselves: nothing that Starlette puts around a call is of use to them.
        path: str = scope["path"]
        if scope["type"] == "websocket":
            await rest(scope, receive, send)
        elif path == "/":
            await front(scope, receive, send)
        elif vertex.owns(path):
            await google(scope, receive, send)
        else:
            await (huawei if modelarts.owns(path) else rest)(scope, receive, send)

    whole = _with_s3(app, storage, keys, settings) if settings.storage.s3.port else app
    await asyncio.to_thread(storage.embedded.sweep)
    for engine in engines.values():
        await engine.open()
    await control.start()
    conductor.start()
    sweeping = asyncio.create_task(keep_swept(store, engines, settings.limits.log_days), name="sweep")
    try:
        yield LocalPeersOnly(whole) if settings.no_auth else whole, control.hub.close, jobs.counts
    finally:
        sweeping.cancel()
        await dashboards.close()
        await conductor.close()
        await control.close()
        for engine in engines.values():
            await engine.close()
        await store.close()
        ring.close()


def _open_ring(settings: Settings) -> KeyRing:
    """A key that cannot be had is the trouble of those who name it, and nobody else's."""
    keys = settings.keyring.items()
    ring = KeyRing(
        {name: key.file for name, key in keys if key.file},
        {name: key.command for name, key in keys if key.command},
    )
    ring.open()
    for why in ring.check().values():
        logging.getLogger(__name__).warning(why)
    return ring


def _with_s3(app: ASGIApp, storage: Storage, keys: Keys, settings: Settings) -> ASGIApp:
    """S3 has every path for itself, so it has a port of its own."""
    from turnout.doors import s3  # only for those who want it

    door = s3.app(storage.embedded, keys, time.time, settings.no_auth)

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        at_door = scope["type"] == "http" and scope["server"][1] == settings.storage.s3.port
        await (door if at_door else app)(scope, receive, send)

    return whole


def _remote(settings: Settings) -> Remote:
    """The buckets that lie in real object stores. Raises Misconfigured."""
    buckets, schemes = settings.storage.buckets, settings.storage.schemes
    private = {name: one.project for name, one in buckets.items() if one.project}
    private |= {f"{name}://": one.project for name, one in schemes.items() if one.project}
    found = Remote(
        {name: _backing(one, f"s3://{name}") for name, one in buckets.items()},
        {name: _backing(one, f"{name}://") for name, one in schemes.items()},
        private,
        config.usual_credentials(),
    )
    for kind, backings in (("buckets", found.buckets), ("schemes", found.schemes)):
        for name, backing in backings.items():
            check_backing(backing, f"[storage.{kind}.{name}]")
    return found


def _backing(one: config.Backing, url: str) -> Backing:
    fields = msgspec.to_builtins(one)
    del fields["project"]
    return Backing(**fields | {"url": one.url or url})


def _grpc(settings: Settings, port: int) -> contextlib.AbstractAsyncContextManager[None]:
    """The process that speaks gRPC, for those who want it."""
    if not settings.grpc.port:
        return contextlib.nullcontext()
    pair = tls.read(*settings.tls_files) if settings.tls_files else tls.Pair("", "")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.server.host, settings.server.host)
    rest = _endpoint(settings, host, port)
    return grpc.beside(
        grpc.Orders(settings.server.host, settings.grpc.port, rest, *pair, no_auth=settings.no_auth)
    )


def _uvicorn(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    cert, key = settings.tls_files or (None, None)
    return uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws=cast(type[asyncio.Protocol], _websockets),
        ws_max_size=_LARGEST_MESSAGE,
        ws_per_message_deflate=False,
        ws_ping_timeout=60,
        lifespan="off",
        access_log=False,
        log_config=None,  # as all that is logged
        log_level="warning",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )


def _websockets(**details: Any) -> asyncio.Protocol:
    """Imported by the first who opens a shell."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    return WebSocketsSansIOProtocol(**details)


class _Server(uvicorn.Server):
    """Sleeps until it is told to stop, where uvicorn looks ten times a second, and lets go of clients that wait."""

    def __init__(self, settings: uvicorn.Config, leave: Callable[[], None]) -> None:
        super().__init__(settings)
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._told = asyncio.Event()

    async def main_loop(self) -> None:
        await self._told.wait()
        self._leave()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._told.set)


def check(settings: Settings) -> None:
    """What would make the start fail, before anything is made. Raises Misconfigured."""
    data = settings.data
    account = _job_account(settings)
    wall = account.blocked(next(parent for parent in data.parents if parent.exists()))
    if account.other and wall:
        mode = stat.filemode(wall.stat().st_mode)
        raise Misconfigured(
            f"jobs run as {account.name}, who cannot get through {wall} ({mode}) to {data}: "
            f"choose another directory with --data, or run chmod o+x {wall}"
        )
    for name in settings.runtimes:
        _check_runtime(settings, name, account)
    if settings.tls_files:
        tls.read(*settings.tls_files)
    if settings.grpc.port:
        grpc.check()
    if not data.exists():
        host_python(account)


def missing_for_search() -> list[str]:
    """What the extra `search` would install. Looks only."""
    return missing_packages()


def job_interpreter(settings: Settings, runtime: str = "") -> str:
    """What programs of a runtime get, or those whose runtime the settings do not name. Looks only."""
    account = _job_account(settings)
    path = settings.runtimes[runtime].python if runtime else ""
    if runtime:
        _check_runtime(settings, runtime, account)
    found = ask(path) if path else host_python(account)
    return f"Python {found.version} ({found.path})"


def _job_account(settings: Settings) -> Account:
    """Whom jobs run as. A user that is missing is not made yet: somebody who owns nothing."""
    name = settings.engines.local.user
    try:
        pwd.getpwnam(name)
        return job_user(name)
    except KeyError:
        return Account(name, -1, -1, other=True) if os.geteuid() == 0 else job_user(name)


def _check_runtime(settings: Settings, name: str, account: Account) -> None:
    runtime, table = settings.runtimes[name], config.runtime_table(name)
    for what, path in {"python": runtime.python, **runtime.mounts}.items():
        if path and not Path(path).exists():
            setting = "python" if what == "python" else f"mounts: {what}"
            raise Misconfigured(f"{table} {setting} = {path!r} does not exist")
    if runtime.python and (wall := account.blocked(Path(runtime.python))):
        raise Misconfigured(
            f"{table} python = {runtime.python!r} cannot be executed by {account.name}, who runs the jobs: "
            f"{wall} is in the way"
        )


def allow_many_connections() -> None:
    """As many open files as the machine lets us have: every client that waits holds one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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
def listen(host: str, port: int, setting: str = "--port") -> Generator[socket.socket]:
    """The socket, bound before anything is started, so that a port that is taken is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(2048)
        except OSError as error:
            raise Misconfigured(
                f"cannot listen on {host}:{port}: {_obstacle(error, host, setting)}"
            ) from None
        yield listener


def _obstacle(error: OSError, host: str, setting: str) -> str:
    """Why it cannot be listened there, and what would help."""
    if isinstance(error, socket.gaierror):
        return f"{host} is not known; give --host an address of this machine, such as 127.0.0.1"
    match error.errno:
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine; give --host one that is, such as 127.0.0.1"
        case errno.EADDRINUSE:
            return f"the port is taken, perhaps by a turnout serve that runs; give {setting} another number"
        case errno.EACCES:
            return f"ports below 1024 are root's; give {setting} another number"
        case _:
            return f"{error.strerror}; give --host or {setting} another value"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _welcome(settings: Settings, root: Key, port: int, paths: Paths) -> str:
    host = settings.server.host
    endpoint = _endpoint(settings, host, port)
    key = "not needed (--no-auth)" if settings.no_auth else f"{root.id}:{root.secret}"
    variable = "" if settings.no_auth else f" TURNOUT_KEY={key}"
    doors = ""
    if settings.storage.s3.port:
        doors += f"\n  S3         {_endpoint(settings, host, settings.storage.s3.port)}"
    if settings.grpc.port:
        doors += f"\n  gRPC       {_endpoint(settings, host, settings.grpc.port).partition('//')[2]}"
    tictl = Path(sys.argv[0]).with_name("tictl")
    return f"""\
Turnout {__version__} listens on {endpoint}
  root key   {key}
  data       {paths.data}{doors}

Submit a first job, from another terminal:
  export TURNOUT_ENDPOINT={endpoint}{variable}
  {tictl} job create hello --command "echo hello, world" --wait
  {tictl} logs hello
"""


def _farewell(running: int) -> str:
    if not running:
        return ""
    over = "\r" if sys.stdout.isatty() else ""  # a terminal shows ^C where this is to begin
    if running == 1:
        return f"{over}1 job goes on running; turnout serve takes it up again\n"
    return f"{over}{running} jobs go on running; turnout serve takes them up again\n"


def _endpoint(settings: Settings, host: str, port: int) -> str:
    scheme = "https" if settings.tls_files else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
