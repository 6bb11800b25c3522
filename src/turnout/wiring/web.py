"""The application of all ports: it hands each request to the API that it is for."""

import time
from collections.abc import Iterable, Sequence

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout import server
from turnout.bodies import Bodies
from turnout.dialects import Dialect
from turnout.engines.remote import RemoteEngine
from turnout.gateways import gcs
from turnout.gateways import runner as runner_gateway
from turnout.gateways.jobs import GangServers, JobGateway
from turnout.job import Attempt
from turnout.service import calls
from turnout.storage.clients import ClientBucketsOf, client_buckets
from turnout.web import (
    LimitedProtocol,
    LocalPeersOnly,
    MetricSources,
    Page,
    Recorder,
    RequestTimes,
    TrustedProxies,
    refusal_of,
)
from turnout.web import routes as status_routes

from .base import Base
from .engines import Engines
from .jobs import JobParts
from .pages import Pages


def make_app(
    base: Base,
    engines: Engines,
    parts: JobParts,
    pages: Pages,
    dialects: Sequence[Dialect],
    warnings: list[str],
    grpc_secret: str,
) -> ASGIApp:
    settings, times = base.settings, RequestTimes()
    stores = client_buckets(base.storage)
    gcs_routes, signed_urls = gcs.routes(stores("gs"), base.job_keys, settings, refusal_of, base.bodies)
    sources = MetricSources(parts.jobs, times, parts.webhooks, engines.local.staged, time.time())
    routes = [*pages.shells.routes(), *status_routes(sources, warnings), *gcs_routes]
    rest = Starlette(routes=routes, exception_handlers={404: pages.page.not_found})
    app = _dispatch((signed_urls, pages.page, *dialects), rest)
    if settings.storage.s3.port:
        app = _with_s3(app, base, stores)
    app = Recorder(app, times, base.audit, base.keys.name_of, grpc_secret)
    if settings.no_auth:
        app = LocalPeersOnly(app, grpc_secret)
    if settings.storage.in_jobs:
        gateway = _job_gateway(base, gcs_routes, stores)
        recorded = Recorder(gateway, times, base.audit, base.keys.name_of)
        engines.local.gang_listeners = GangServers(recorded, server.http_config(recorded, LimitedProtocol))
        app = _with_jobs(app, gateway, recorded)
    if engines.remote:
        app = _with_runners(app, engines.remote.values(), base.bodies)
    if proxies := settings.trusted_proxies():
        app = TrustedProxies(app, proxies)
    return app


def _dispatch(owners: Sequence[Dialect | gcs.SignedUrls | Page], rest: ASGIApp) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for owner in owners:
                if owner.owns(scope):
                    calls.serve_by(owner.name)
                    return await owner(scope, receive, send)
            if scope["path"].startswith(gcs.PREFIXES):
                calls.serve_by(gcs.SignedUrls.name)
        return await rest(scope, receive, send)

    return app


def _with_s3(app: ASGIApp, base: Base, stores: ClientBucketsOf) -> ASGIApp:
    """S3 uses every path, so it has a port of its own."""
    from turnout.gateways.s3.app import app as s3_app  # imported only where S3 is served

    settings = base.settings.storage.s3
    s3 = s3_app(stores, base.job_keys, time.time, base.bodies, base.settings.no_auth, settings.domains)

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        is_s3 = scope["type"] == "http" and scope["server"][1] == settings.port
        if is_s3:
            calls.serve_by("s3")
        await (s3 if is_s3 else app)(scope, receive, send)

    return both


def _job_gateway(base: Base, gcs_routes: list[Route], stores: ClientBucketsOf) -> JobGateway:
    def s3_of(attempt: Attempt | None) -> ASGIApp:
        from turnout.gateways.s3.app import app as s3_app

        keys = base.job_keys.only(attempt) if attempt else base.job_keys
        domains = base.settings.storage.s3.domains
        return s3_app(stores, keys, time.time, base.bodies, domains=domains)

    return JobGateway(base.job_keys, Starlette(routes=gcs_routes), s3_of)


def _with_jobs(app: ASGIApp, gateway: JobGateway, recorded: ASGIApp) -> ASGIApp:
    """Jobs have keys of their own, also where nobody else needs one."""

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        entered = gateway.enter(scope)
        await (app(scope, receive, send) if entered is None else recorded(entered, receive, send))

    return both


def _with_runners(app: ASGIApp, remote: Iterable[RemoteEngine], bodies: Bodies) -> ASGIApp:
    """Runners have tokens of their own, also where nobody else needs a key."""
    gateway = runner_gateway.app([one.calls for one in remote], bodies)

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        is_runner = scope["type"] == "http" and scope["path"].startswith(runner_gateway.PREFIX)
        await (gateway if is_runner else app)(scope, receive, send)

    return both
