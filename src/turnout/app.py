"""Wires the packages together: opens them in order, serves them on one port, and closes them again."""

import asyncio
import contextlib
import logging
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import NamedTuple

import uvloop
from starlette.types import ASGIApp

from turnout import banner, config, data_directory, memory, server
from turnout.access import Keys, open_root_key
from turnout.child_processes.nobody import nobody
from turnout.config import Settings
from turnout.control.sweep import Sweeper
from turnout.data_directory import Lock, Removals
from turnout.dialects import Context, Dialect
from turnout.dialects.modelarts import ModelArts
from turnout.dialects.native import Native
from turnout.dialects.tia import Tia
from turnout.dialects.vertex import Vertex
from turnout.engines.local.machine import preflight
from turnout.engines.local.supervisor.listeners import BACKLOG, Listeners, Port
from turnout.gateways import grpc
from turnout.job import State
from turnout.paths import Paths
from turnout.store import Store
from turnout.web import LimitedProtocol, tls
from turnout.wiring.base import certificate, close_base, open_base
from turnout.wiring.dialects import make_dialects
from turnout.wiring.engines import make_engines
from turnout.wiring.jobs import make_job_parts
from turnout.wiring.pages import make_pages
from turnout.wiring.web import make_app

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
    # What is private has its own mode; with a stricter umask, jobs could not enter their sandbox.
    os.umask(0o022)
    memory.prepare()
    LimitedProtocol.give_back = memory.give_back
    server.raise_file_limit()
    check(settings)
    with Listeners(_ports(settings), certificate(settings), settings.server.restart_seconds) as listeners:
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
    certificate(settings)
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


async def _serve(
    settings: Settings, paths: Paths, keys: Keys, listeners: Listeners, removals: Removals, first_start: bool
) -> None:
    port = listeners.listening[0].getsockname()[1]
    grpc_secret = secrets.token_urlsafe()
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
    base = await open_base(settings, paths, keys)
    engines = make_engines(base, listeners)
    parts = make_job_parts(base, engines)
    pages = make_pages(base, parts.jobs)
    dialects = make_dialects(DIALECTS, base, engines, parts, pages)
    app = make_app(base, engines, parts, pages, dialects, removals.warnings, grpc_secret)
    await engines.open()
    removals.database_removed = base.store.was_removed
    removals.watch(database=not settings.store.url)
    await parts.start()
    engines.local.gang_listeners.start()

    def stopping() -> None:
        engines.stopping()
        parts.control.changes.close()

    try:
        async with _in_background(parts.sweeper, dialects):
            yield Service(app, stopping, parts.jobs.counts)
    finally:
        removals.close()
        await pages.program_pages.close()
        await parts.close()
        await engines.close()
        await close_base(base)


@contextlib.asynccontextmanager
async def _in_background(sweeper: Sweeper, dialects: Sequence[Dialect]) -> AsyncGenerator[None]:
    sweeping = asyncio.create_task(sweeper.keep(), name="sweep")
    working = [asyncio.create_task(dialect.run(), name=dialect.name) for dialect in dialects]
    try:
        yield
    finally:
        for task in (sweeping, *working):
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)


def _grpc_gateway(
    settings: Settings, port: int, listeners: Listeners, secret: str
) -> contextlib.AbstractAsyncContextManager[None]:
    """The process that serves gRPC, if the settings have a port for it."""
    if not settings.grpc.port:
        return contextlib.nullcontext()
    pair = certificate(settings) or tls.CertificatePair("", "")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.server.host, settings.server.host)
    setup = grpc.GatewaySetup(
        listeners.descriptor("grpc"),
        settings.server.host,
        settings.endpoint(host, port),
        *pair,
        no_auth=settings.no_auth,
        operator=os.getuid(),
        secret=secret,
    )
    return grpc.run_process(setup, nobody())
