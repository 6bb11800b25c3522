"""The cache of images: GET `/turnout/v1/images`, POST `…/images/pull` and, for root, POST `…/images/import` and DELETE
`…/images/<name>`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects.native import reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.event_stream import stream
from turnout.errors import Denied, Invalid
from turnout.images import Archive, CachedImage, Image, ImageCache, Progress, parse
from turnout.images.cache import OnProgress
from turnout.images.reference import LOCAL_TRANSPORTS, transport_of
from turnout.service import Caller, calls


class ImageDocument(msgspec.Struct):
    name: str
    digest: str
    bytes: int
    """Of its unpacked layers, which other images may share."""
    files: int
    layers: int
    registry: str
    """The table of `[registries]` whose projects may use it; empty: every project."""
    source: str
    """What it was imported from; empty: a registry."""
    pulled_at: int
    used_at: int
    """Seconds since 1970."""
    jobs: int
    """How many attempts run in it."""
    skipped: list[str]
    """What was left out of it, and why."""


class PullDocument(msgspec.Struct):
    """One event of a pull."""

    stage: str
    bytes: int
    total: int
    layer: int
    layers: int
    message: str
    digest: str = ""
    """Of the image, in the last event."""


def image_routes(cache: ImageCache, guarded: Guard) -> list[Route]:
    calls = _ImageHandlers(cache)
    return [
        Route("/turnout/v1/images", guarded(calls.list), methods=["GET"]),
        Route("/turnout/v1/images/pull", guarded(calls.pull), methods=["POST"]),
        Route("/turnout/v1/images/import", guarded(calls.import_), methods=["POST"]),
        Route("/turnout/v1/images/{name:path}", guarded(calls.remove), methods=["DELETE"]),
    ]


class _ImageHandlers:
    def __init__(self, cache: ImageCache) -> None:
        self._cache = cache

    async def list(self, request: Request, caller: Caller) -> Response:
        images = self._cache.cached(caller.project, caller.root)
        return reply.json({"images": [_document(one, caller.root) for one in images]})

    async def pull(self, request: Request, caller: Caller) -> Response:
        """Asks the registry, also if the image is in the cache."""
        name = parse(_parameter(request, "name"), "name")
        calls.about(str(name))
        return await stream(
            "progress", _progress(lambda report: self._cache.pull(name, caller.project, report))
        )

    async def import_(self, request: Request, caller: Caller) -> Response:
        if not caller.root:
            raise Denied(
                "only the root key may import images: an import reads files of the service's machine"
            )
        source = _parameter(request, "source")
        name = parse(_parameter(request, "name"), "name")
        if name.digest:
            raise Invalid("an image is imported under a tag, not under a digest", field="name")
        if transport_of(source) not in LOCAL_TRANSPORTS:
            known = ", ".join(f"{one}:" for one in LOCAL_TRANSPORTS)
            raise Invalid(
                f"source must begin with one of {known} not be {source[:200]!r}; `turnout image pull` brings an image "
                "from a registry",
                field="source",
            )
        calls.about(str(name))
        return await stream(
            "progress", _progress(lambda report: self._cache.add(Archive(source), name, report))
        )

    async def remove(self, request: Request, caller: Caller) -> Response:
        if not caller.root:
            raise Denied("only the root key may remove images: all projects share them")
        name = str(parse(request.path_params["name"], "name"))
        calls.about(name)
        return reply.json({"name": name, "bytes": await self._cache.remove(name)})


async def _progress(bring: Callable[[OnProgress], Awaitable[Image]]) -> AsyncIterator[PullDocument]:
    """The newest progress. The pull ends with the client, unless others wait for it too."""
    news = asyncio.Event()
    last: list[Progress] = []

    def report(progress: Progress) -> None:
        last[:] = [progress]
        news.set()

    pulling = asyncio.ensure_future(bring(report))
    pulling.add_done_callback(lambda _: news.set())
    try:
        while not pulling.done():
            await news.wait()
            news.clear()
            if last and not pulling.done():
                yield _event(last[0])
        image = pulling.result()
    finally:
        pulling.cancel()
    message = last[0].message if last else ""
    yield msgspec.structs.replace(_event(Progress("done", message=message)), digest=image.digest)


def _event(progress: Progress) -> PullDocument:
    return PullDocument(**msgspec.structs.asdict(progress))


def _parameter(request: Request, name: str) -> str:
    value = request.query_params.get(name, "")
    if not value:
        raise Invalid(f"{name} is missing: send it as a parameter of the URL", field=name)
    return value


def _document(one: CachedImage, root: bool) -> ImageDocument:
    record = one.name
    return ImageDocument(
        record.name,
        record.digest,
        one.bytes,
        one.files,
        one.layers,
        record.scope,
        record.source if root else record.source and "imported",
        one.pulled_at,
        int(record.used_at),
        one.holders,
        one.skipped,
    )
