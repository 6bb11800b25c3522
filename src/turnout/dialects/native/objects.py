"""Objects in buckets, for `turnout cp`, `ls` and `rm`. Uploads and downloads are streamed.

GET, HEAD, PUT and DELETE `/turnout/v1/object?url=gs://bucket/key` act on an object. PUT with `from=<url>` copies one.
`/turnout/v1/objects` lists the objects whose URLs begin with `url`; `/turnout/v1/object/info` describes one.
"""

import re
from email.utils import formatdate
from functools import partial
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout import errors
from turnout.access import Keys
from turnout.access.revoked import accepted_until_revoked, unless_revoked
from turnout.bodies import Bodies
from turnout.dialects.native import reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.wire import BucketDocument, ObjectDocument, PageDocument
from turnout.service import Caller, Info, Objects, calls
from turnout.service.download import Download

CRC32C = "X-Turnout-Crc32c"
"""Base64 of its four bytes, as Google writes it."""

_MAX_PAGE = 1000


def object_routes(objects: Objects, bodies: Bodies, keys: Keys, guarded: Guard) -> list[Route]:
    handlers = _ObjectHandlers(objects, bodies, keys)
    return [
        Route("/turnout/v1/buckets", guarded(handlers.buckets)),
        Route("/turnout/v1/buckets/{name}", guarded(handlers.make_bucket), methods=["PUT"]),
        Route("/turnout/v1/buckets/{name}", guarded(handlers.remove_bucket), methods=["DELETE"]),
        Route("/turnout/v1/objects", guarded(handlers.list)),
        Route("/turnout/v1/object/info", guarded(handlers.info)),
        Route("/turnout/v1/object", guarded(handlers.get), methods=["GET", "HEAD"]),
        Route("/turnout/v1/object", guarded(handlers.put), methods=["PUT"]),
        Route("/turnout/v1/object", guarded(handlers.delete), methods=["DELETE"]),
    ]


class _ObjectHandlers:
    def __init__(self, objects: Objects, bodies: Bodies, keys: Keys) -> None:
        self._objects = objects
        self._bodies = bodies
        self._keys = keys

    async def buckets(self, request: Request, caller: Caller) -> Response:
        found = await self._objects.buckets(caller.project)
        return reply.json({"buckets": [BucketDocument(*bucket) for bucket in found]})

    async def make_bucket(self, request: Request, caller: Caller) -> Response:
        """A name that another project has, or had, is refused."""
        calls.about(request.path_params["name"])
        await self._objects.make_bucket(request.path_params["name"], caller.project)
        return reply.json({}, 201)

    async def remove_bucket(self, request: Request, caller: Caller) -> Response:
        """Only an empty bucket. Its name stays reserved for the project."""
        calls.about(request.path_params["name"])
        await self._objects.remove_bucket(request.path_params["name"], caller.project)
        return reply.json({})

    async def list(self, request: Request, caller: Caller) -> Response:
        query = request.query_params
        limit = query.get("limit", str(_MAX_PAGE))
        if not re.fullmatch(r"[1-9]\d{0,5}", limit):
            raise errors.Invalid(f"limit must be a whole number of at least 1, not {limit!r}", field="limit")
        page = await self._objects.list(
            _url(request),
            caller.project,
            query.get("delimiter", ""),
            query.get("after", ""),
            min(int(limit), _MAX_PAGE),
        )
        return reply.json(PageDocument([_document(info) for info in page.objects], page.prefixes, page.next))

    async def info(self, request: Request, caller: Caller) -> Response:
        return reply.json(_document(await self._objects.info(_url(request), caller.project)))

    async def get(self, request: Request, caller: Caller) -> Response:
        """Range, If-Match and If-None-Match are honoured."""
        url = _url(request)
        if request.method == "HEAD":
            info = await self._objects.info(url, caller.project)
            return Response(headers=_headers(info) | {"Content-Length": str(info.size)})
        known = request.headers.get("if-none-match", "").strip('"')
        if known and known == (await self._objects.info(url, caller.project)).etag:
            return Response(status_code=304)
        expected_etag = request.headers.get("if-match", "").strip('"')
        byte_range = request.headers.get("range", "")
        opened = await self._objects.read(url, caller.project, byte_range, expected_etag)
        headers = (
            _headers(opened.info)
            | _saved_as(opened.info)
            | {"Content-Length": str(opened.end - opened.start)}
        )
        whole = opened.end - opened.start == opened.info.size
        if not whole:
            headers["Content-Range"] = f"bytes {opened.start}-{opened.end - 1}/{opened.info.size}"
        response = Download(opened.body, opened.close, 200 if whole else 206, headers)
        response.guard = partial(unless_revoked, self._keys, caller.key)
        return response

    async def put(self, request: Request, caller: Caller) -> Response:
        """With `If-None-Match: *`, only if the object does not exist. The audit trail has no uploads."""
        calls.identify(caller.key, caller.project, changes=False)
        url, source = _url(request), request.query_params.get("from")
        absent = request.headers.get("if-none-match", "").strip() == "*"
        if source:
            return reply.json(_document(await self._objects.copy(source, url, caller.project, absent)))
        stream = accepted_until_revoked(self._keys, caller.key, request.stream())
        async with self._bodies.upload(caller.project, stream) as body:
            info = await self._objects.write(
                url,
                caller.project,
                body,
                request.headers.get("content-type", ""),
                absent,
                request.headers.get(CRC32C, ""),
            )
        return reply.json(_document(info))

    async def delete(self, request: Request, caller: Caller) -> Response:
        calls.about(_url(request))
        await self._objects.delete(_url(request), caller.project)
        return reply.json({})


def _url(request: Request) -> str:
    url = request.query_params.get("url")
    if not url:
        raise errors.Invalid("name the object with url=", field="url")
    return url


def _document(info: Info) -> ObjectDocument:
    return ObjectDocument(info.key, info.size, info.modified, info.etag, info.crc32c, info.content_type)


def _saved_as(info: Info) -> dict[str, str]:
    """A browser saves it under the last part of its key."""
    name = quote(info.key.rpartition("/")[2], safe="")
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}


def _headers(info: Info) -> dict[str, str]:
    headers = {
        "Content-Type": info.content_type.encode("ascii", "replace").decode(),
        "Content-Security-Policy": "sandbox",  # a browser must not run an object as a page of the service
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        "Accept-Ranges": "bytes",
        "ETag": f'"{info.etag}"',
        "Last-Modified": formatdate(info.modified // 1_000_000_000, usegmt=True),
    }
    return headers | ({CRC32C: info.crc32c} if info.crc32c else {})
