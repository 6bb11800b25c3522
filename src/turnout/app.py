"""Wires the packages together: opens them in order, serves them on one port, and closes them again."""

import asyncio
import contextlib
import logging
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import uvloop
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout import banner, config, data_directory, memory, pools, server
from turnout.access import Keys, open_root_key
from turnout.bodies import Bodies
from turnout.child_processes.nobody import nobody
from turnout.config import Settings
from turnout.control import Controller
from turnout.control.sweep import Files, Sweeper
from turnout.data_directory import Lock, Removals
from turnout.dialects import Context, Dialect, MakeTrialJob
from turnout.dialects.modelarts import ModelArts
from turnout.dialects.native import Native
from turnout.dialects.tia import Tia
from turnout.dialects.vertex import Vertex
from turnout.engines import Engine, EngineRegistry
from turnout.engines.local import LocalEngine
from turnout.engines.local.cleanup import leftovers
from turnout.engines.local.machine import preflight
from turnout.engines.local.supervisor.listeners import BACKLOG, Listeners, Port
from turnout.engines.local.users import ownership
from turnout.engines.local.users.account import Accounts, accounts
from turnout.engines.remote import RemoteEngine, RunnerCall, remote_settings
from turnout.engines.slurm import SlurmCluster, SlurmSettings
from turnout.gateways import gcs, grpc
from turnout.gateways import runner as runner_gateway
from turnout.gateways.s3 import abandoned as abandoned_s3
from turnout.job import State
from turnout.paths import Paths
from turnout.runner import archive as runner_archive
from turnout.search import SearchController, SearchWorkerPool
from turnout.service import Assets, Clusters, Jobs, Logs, Objects, Searches, Sources, TrialJobs
from turnout.storage import Owners, Storage
from turnout.storage.remote.configured import remote_buckets
from turnout.store import Store
from turnout.vault import KeyRing, open_ring
from turnout.web import (
    BrowserAccess,
    BrowserLinks,
    Dashboards,
    LimitedProtocol,
    LocalPeersOnly,
    ShellPages,
    page,
    refusal_of,
    tls,
)
from turnout.web import routes as status_routes

DIALECTS: tuple[Callable[[Context], Dialect], ...] = (Tia, Vertex, ModelArts, Native)
"""A request goes to the first that owns it."""


class Service(NamedTuple):
    """The service while it is open."""

    app: ASGIApp
    stopping: Callable[[], None]
    """Tells the engines that the service stops on purpose, and ends requests that wait."""
    count: Callable[[], dict[str, int]]
    """The number of live jobs in each state."""


def serve(settings: Settings) -> None:
    """Run the service until a signal stops it. Running jobs go on without it."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    config.prepare_chaos()
    memory.prepare()
    LimitedProtocol.give_back = memory.give_back
    server.raise_file_limit()
    check(settings)
    with Listeners(_ports(settings), _certificate(settings), settings.server.restart_seconds) as listeners:
        if not settings.data.exists():
            # No supervisor can hold the ports yet, and a refused start must leave no directory behind.
            listeners.bind()
        paths = data_directory.prepare(settings)
        with Lock(paths) as lock:
            listeners.take(paths.supervisor)
            listeners.bind()
            first_start = not paths.root_key.exists()
            keys = Keys(open_root_key(paths.root_key, settings.root_key))
            removals = Removals(paths, lock)
            uvloop.run(_serve(settings, paths, keys, listeners, removals, first_start))


def check(settings: Settings) -> None:
    """Raises Misconfigured for what would make the start fail. Makes nothing."""
    preflight.check(settings)
    _certificate(settings)
    if settings.grpc.port:
        grpc.check()
    Store.check(settings.store.url)


def _ports(settings: Settings) -> list[Port]:
    """The ports of the service, the main one first."""
    host, s3, grpc_port = settings.server.host, settings.storage.s3.port, settings.grpc.port
    ports = [Port("main", host, settings.server.port, "--port")]
    if s3:
        ports.append(Port("s3", host, s3, "[storage.s3] port"))
    if grpc_port:
        ports.append(Port("grpc", host, grpc_port, "[grpc] port", handed_on=True))
    return ports


def _certificate(settings: Settings) -> tls.CertificatePair | None:
    return tls.read(*settings.tls_files) if settings.tls_files else None


async def _serve(
    settings: Settings, paths: Paths, keys: Keys, listeners: Listeners, removals: Removals, first_start: bool
) -> None:
    port = listeners.listening[0].getsockname()[1]
    grpc_secret = secrets.token_urlsafe() if settings.no_auth else ""
    opened = _open(settings, paths, keys, listeners, removals, grpc_secret)
    async with opened as service, _grpc_gateway(settings, port, listeners, grpc_secret):
        server.tune_interpreter()
        root_key = f"{keys.root.id}:{keys.root.secret}" if first_start and sys.stdout.isatty() else ""
        paths.endpoint.write_text(settings.endpoint(settings.server.host, port))
        sys.stdout.write(banner.started(settings, port, paths, root_key))
        sys.stdout.flush()
        await server.Server(service.app, LimitedProtocol, settings, BACKLOG, service.stopping).serve(
            listeners.listening
        )
        with contextlib.suppress(OSError):  # the reader of the output may be gone
            sys.stdout.write(banner.stopped(service.count().get(State.RUNNING, 0)))
            sys.stdout.flush()


@contextlib.asynccontextmanager
async def _open(
    settings: Settings,
    paths: Paths,
    keys: Keys,
    listeners: Listeners,
    removals: Removals,
    grpc_secret: str,
) -> AsyncGenerator[Service]:
    ring = await pools.service.run(pools.OWN, open_ring, settings.keyring)
    store = Store.open(settings.store.url, paths.database, ring)
    store.unreadable.keep_in(paths.unreadable)
    await keys.open(store)
    users = await pools.service.run(pools.OWN, accounts, settings.engines.local, paths.users)
    storage = await pools.service.run(pools.OWN, _open_storage, settings, paths, users, ring)
    remote = _remote_engines(settings, paths, storage, listeners)
    engines: dict[str, Engine] = {"local": LocalEngine(paths, settings, storage, ring, listeners, users)}
    engines |= {f"{one.traits.kind}/{name}": one for name, one in remote.items()}
    clusters = {
        name: f"{cluster.engine}/{name}" if name in remote else cluster.engine
        for name, cluster in settings.all_clusters().items()
    }
    registry = EngineRegistry(engines, clusters)
    control = Controller(store, registry)
    storage.embedded.mounted = control.mounted
    jobs = Jobs(store, control, registry)
    logs = Logs(jobs)
    browser_access = BrowserAccess(keys, settings.no_auth)
    dashboards = Dashboards(jobs, browser_access, settings.server.host, settings.tls_files)
    bodies = Bodies(settings.limits.body_bytes, memory.give_back)
    make_trial_job: dict[str, MakeTrialJob] = {}
    search_controller = SearchController(
        store, TrialJobs(jobs, logs, control, make_trial_job), _search_pool(settings, paths), settings.limits
    )
    control.on_new_search = search_controller.add
    sweeper = Sweeper(store, engines, settings.limits, control.delete, _swept_files(storage, paths))
    objects = Objects(storage)
    context = Context(
        jobs=jobs,
        logs=logs,
        searches=Searches(store, control, search_controller),
        assets=Assets(store),
        objects=objects,
        sweeper=sweeper,
        sources=Sources(storage, objects),
        clusters=Clusters(jobs, remote, settings),
        keys=keys,
        settings=settings,
        bodies=bodies,
        web_access=BrowserLinks(jobs, browser_access, dashboards).uris,
        home_page=page,
        clock=time.time_ns,
    )
    dialects = [dialect(context) for dialect in DIALECTS]
    make_trial_job |= {dialect.name: dialect.make_trial_job for dialect in dialects if dialect.make_trial_job}
    gcs_routes, signed_urls = gcs.routes(storage.embedded, keys, settings, refusal_of, bodies)
    rest = Starlette(
        routes=[
            *ShellPages(jobs, browser_access).routes(),
            *status_routes(jobs, removals.warnings),
            *gcs_routes,
        ]
    )
    app = _dispatch((signed_urls, *dialects), rest)
    if settings.storage.s3.port:
        app = _with_s3(app, storage, keys, settings, bodies)
    if settings.no_auth:
        app = LocalPeersOnly(app, grpc_secret)
    if remote:
        app = _with_runners(app, remote.values(), bodies)
    await pools.service.run(pools.OWN, storage.embedded.sweep)
    for engine in engines.values():
        await engine.open()
    removals.database_removed = store.was_removed
    removals.watch(database=not settings.store.url)
    await control.start()
    search_controller.start()

    def stopping() -> None:
        for engine in engines.values():
            engine.stopping()
        control.changes.close()

    sweeping = asyncio.create_task(sweeper.keep(), name="sweep")
    try:
        yield Service(app, stopping, jobs.counts)
    finally:
        sweeping.cancel()
        removals.close()
        await dashboards.close()
        await search_controller.close()
        await control.close()
        for engine in engines.values():
            await engine.close()
        await store.close()
        await pools.close()
        ring.close()


def _open_storage(settings: Settings, paths: Paths, users: Accounts, ring: KeyRing) -> Storage:
    owners = Owners(*ownership.bucket_owners(users)) if users.uids else None
    sources = (paths.buckets, settings.host_paths(), paths.data)
    remote = remote_buckets(settings.storage, open_to_all=settings.no_auth)
    storage = Storage(*sources, owners, users.blocked, remote, ring, open_to_all=settings.no_auth)
    storage.open()
    return storage


def _search_pool(settings: Settings, paths: Paths) -> SearchWorkerPool:
    limits = settings.limits
    return SearchWorkerPool(
        limits.search_processes, limits.search_memory, cache=paths.search, identity=nobody()
    )


def _swept_files(storage: Storage, paths: Paths) -> list[Files]:
    uploads = storage.embedded.uploads
    return [
        Files("uploads to GCS", "upload_days", partial(gcs.clear, uploads)),
        Files("uploads to S3", "upload_days", partial(abandoned_s3.clear, uploads)),
        Files("files set aside, and caches", "aside_days", partial(leftovers.clear, paths)),
        Files("the supervisor's log", "supervisor_log_bytes", partial(leftovers.trim_log, paths)),
    ]


def _dispatch(owners: Sequence[Dialect | gcs.SignedUrls], rest: ASGIApp) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        http = scope["type"] == "http"
        owner = next((candidate for candidate in owners if candidate.owns(scope)), None) if http else None
        await (owner or rest)(scope, receive, send)

    return app


def _with_s3(app: ASGIApp, storage: Storage, keys: Keys, settings: Settings, bodies: Bodies) -> ASGIApp:
    """S3 uses every path, so it has a port of its own."""
    from turnout.gateways.s3.app import app as s3_app  # imported only where S3 is served

    s3 = s3_app(storage.embedded, keys, time.time, bodies, settings.no_auth)

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        is_s3 = scope["type"] == "http" and scope["server"][1] == settings.storage.s3.port
        await (s3 if is_s3 else app)(scope, receive, send)

    return both


def _remote_engines(
    settings: Settings, paths: Paths, storage: Storage, listeners: Listeners
) -> dict[str, RemoteEngine]:
    """The engine of each cluster that is not this machine, by the cluster's name."""
    clusters = settings.remote_clusters()
    if not clusters:
        return {}
    port = listeners.listening[0].getsockname()[1]
    endpoint = settings.runner.url or settings.endpoint(settings.server.host, port)
    certificate = _certificate(settings)
    fingerprint = tls.fingerprint(certificate) if certificate else ""
    paths.clusters.mkdir(mode=0o700, exist_ok=True)
    archive, digest = runner_archive.build(paths.clusters)
    found: dict[str, RemoteEngine] = {}
    for name, one in clusters.items():
        call = RunnerCall(endpoint, name, "", fingerprint, str(archive), digest, settings.runner.patience)
        remote = remote_settings(name, one, settings, paths, call)
        slurm = SlurmSettings.of(one, config.cluster_environment())
        found[name] = RemoteEngine(remote, SlurmCluster(name, slurm, paths.clusters / name), storage)
    return found


def _with_runners(app: ASGIApp, remote: Iterable[RemoteEngine], bodies: Bodies) -> ASGIApp:
    """Runners have tokens of their own, also where nobody else needs a key."""
    gateway = runner_gateway.app([one.calls for one in remote], bodies)

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        is_runner = scope["type"] == "http" and scope["path"].startswith(runner_gateway.PREFIX)
        await (gateway if is_runner else app)(scope, receive, send)

    return both


def _grpc_gateway(
    settings: Settings, port: int, listeners: Listeners, secret: str
) -> contextlib.AbstractAsyncContextManager[None]:
    """The process that serves gRPC, if the settings have a port for it."""
    if not settings.grpc.port:
        return contextlib.nullcontext()
    certificate = _certificate(settings) or tls.CertificatePair("", "")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.server.host, settings.server.host)
    setup = grpc.GatewaySetup(
        listeners.descriptor("grpc"),
        settings.server.host,
        settings.endpoint(host, port),
        *certificate,
        no_auth=settings.no_auth,
        operator=os.getuid(),
        secret=secret,
    )
    return grpc.run_process(setup, nobody())
