"""Objects in buckets, for `turnout cp`, `ls` and `rm`: named by their url, streamed in both directions.

GET, HEAD, PUT and DELETE `/turnout/v1/object?url=gs://bucket/key`, a copy with PUT and `from=<url>`; what begins with
a url under `/turnout/v1/objects`, what an object is under `/turnout/v1/object/info`.
"""

import re
from email.utils import formatdate

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout import errors
from turnout.dialects.native.guard import Guard
from turnout.dialects.native.wire import BucketDocument, ObjectDocument, PageDocument
from turnout.service import Caller, Info, Objects
from turnout.service.download import Download

CRC32C = "X-Turnout-Crc32c"
"""Base64 of its four bytes, as Google writes it."""

_MOST = 1000


def object_routes(objects: Objects, guarded: Guard) -> list[Route]:
    calls = _Calls(objects)
    return [
        Route("/turnout/v1/buckets", guarded(calls.buckets)),
        Route("/turnout/v1/objects", guarded(calls.list)),
        Route("/turnout/v1/object/info", guarded(calls.info)),
        Route("/turnout/v1/object", guarded(calls.get), methods=["GET", "HEAD"]),
        Route("/turnout/v1/object", guarded(calls.put), methods=["PUT"]),
        Route("/turnout/v1/object", guarded(calls.delete), methods=["DELETE"]),
    ]


class _Calls:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def buckets(self, request: Request, caller: Caller) -> Response:
        found = await self._objects.buckets(caller.project)
        return _json({"buckets": [BucketDocument(name, created) for name, created in found]})

    async def list(self, request: Request, caller: Caller) -> Response:
        asked = request.query_params
        limit = asked.get("limit", str(_MOST))
        if not re.fullmatch(r"[1-9]\d{0,5}", limit):
            raise errors.Invalid(f"limit must be a number from 1 on, not {limit!r}", field="limit")
        page = await self._objects.list(
            _url(request),
            caller.project,
            asked.get("delimiter", ""),
            asked.get("after", ""),
            min(int(limit), _MOST),
        )
        return _json(PageDocument([_document(one) for one in page.objects], page.prefixes, page.next))

    async def info(self, request: Request, caller: Caller) -> Response:
        return _json(_document(await self._objects.info(_url(request), caller.project)))

    async def get(self, request: Request, caller: Caller) -> Response:
        """Range, If-Match and If-None-Match are honoured."""
        url = _url(request)
        if request.method == "HEAD":
            info = await self._objects.info(url, caller.project)
            return Response(headers=_headers(info) | {"Content-Length": str(info.size)})
        known = request.headers.get("if-none-match", "").strip('"')
        if known and known == (await self._objects.info(url, caller.project)).etag:
            return Response(status_code=304)
        wanted = request.headers.get("if-match", "").strip('"')
        asked = request.headers.get("range", "")
        opened = await self._objects.read(url, caller.project, asked, wanted)
        headers = _headers(opened.info) | {"Content-Length": str(opened.end - opened.start)}
        if opened.end - opened.start == opened.info.size:
            return Download(opened.body, opened.close, 200, headers)
        headers["Content-Range"] = f"bytes {opened.start}-{opened.end - 1}/{opened.info.size}"
        return Download(opened.body, opened.close, 206, headers)

    async def put(self, request: Request, caller: Caller) -> Response:
        """With `If-None-Match: *` only where nothing is yet."""
        url, source = _url(request), request.query_params.get("from")
        absent = request.headers.get("if-none-match", "").strip() == "*"
        if source:
            return _json(_document(await self._objects.copy(source, url, caller.project, absent)))
        info = await self._objects.write(
            url,
            caller.project,
            request.stream(),
            request.headers.get("content-type", ""),
            absent,
            request.headers.get(CRC32C, ""),
        )
        return _json(_document(info))

    async def delete(self, request: Request, caller: Caller) -> Response:
        await self._objects.delete(_url(request), caller.project)
        return _json({})


def _url(request: Request) -> str:
    url = request.query_params.get("url")
    if not url:
        raise errors.Invalid("name the object with url=", field="url")
    return url


def _document(info: Info) -> ObjectDocument:
    return ObjectDocument(info.key, info.size, info.modified, info.etag, info.crc32c, info.content_type)


def _headers(info: Info) -> dict[str, str]:
    headers = {
        "Content-Type": info.content_type.encode("ascii", "replace").decode(),
        "Content-Security-Policy": "sandbox",  # a browser shall not take an object for a page of the service's
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        "Accept-Ranges": "bytes",
        "ETag": f'"{info.etag}"',
        "Last-Modified": formatdate(info.modified // 1_000_000_000, usegmt=True),
    }
    return headers | ({CRC32C: info.crc32c} if info.crc32c else {})


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
