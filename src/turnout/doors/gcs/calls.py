"""The calls about buckets and about objects that are there."""

import asyncio
import base64
import binascii
from email.utils import formatdate
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnout.doors.gcs import multipart, resources
from turnout.doors.gcs.errors import Precondition
from turnout.doors.gcs.upload import expectation, generation, text_fields
from turnout.errors import AlreadyExists, Invalid, NotFound, TooLarge, Unsupported, WrongState
from turnout.service.download import Download
from turnout.storage import KeyGone
from turnout.storage.objects import Embedded, Info
from turnout.storage.streams import Reading, byte_range

_LARGEST_DOCUMENT = 1 << 20
_MOST = 1000
_MOST_COMPOSED = 32


class Place(NamedTuple):
    bucket: str
    key: str
    project: str


class Calls:
    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded

    async def list_buckets(self, request: Request, project: str) -> Response:
        prefix = request.query_params.get("prefix", "")
        found = await asyncio.to_thread(self._embedded.buckets, project)
        items = [resources.bucket(_base(request), name, at) for name, at in found if name.startswith(prefix)]
        return JSONResponse({"kind": "storage#buckets", "items": items})

    async def make_bucket(self, request: Request, project: str) -> Response:
        name = (await _document(request)).get("name")
        if not isinstance(name, str):
            raise Invalid("the bucket needs a name", field="name")
        await asyncio.to_thread(self._embedded.make_bucket, name, project)
        return await self.bucket(request, Place(name, "", project))

    async def bucket(self, request: Request, place: Place) -> Response:
        # Another project's is told apart from one that does not exist, as Google does.
        await asyncio.to_thread(self._embedded.has_bucket, place.bucket, place.project)
        created = dict(await asyncio.to_thread(self._embedded.buckets, place.project)).get(place.bucket)
        if created is None:
            raise NotFound(f"there is no bucket {place.bucket!r}")
        return JSONResponse(resources.bucket(_base(request), place.bucket, created))

    async def remove_bucket(self, request: Request, place: Place) -> Response:
        await asyncio.to_thread(self._embedded.remove_bucket, place.bucket, place.project)
        return Response(status_code=204)

    async def objects(self, request: Request, place: Place) -> Response:
        asked = request.query_params
        if asked.get("matchGlob"):
            raise Unsupported("matchGlob is not supported: list with a prefix and match the names yourself")
        start = asked.get("startOffset", "")
        after = _unspell(asked.get("pageToken", "")) or (_just_before(start) if start else "")
        page = await asyncio.to_thread(
            self._embedded.list,
            place.bucket,
            place.project,
            asked.get("prefix", ""),
            asked.get("delimiter", ""),
            after,
            min(generation(request, "maxResults") or _MOST, _MOST),
        )
        end = asked.get("endOffset", "")
        objects = [one for one in page.objects if not end or one.key < end]
        prefixes = [one for one in page.prefixes if not end or one < end]
        document: resources.Document = {"kind": "storage#objects"}
        if prefixes:
            document["prefixes"] = prefixes
        document["items"] = [resources.object_(_base(request), place.bucket, one) for one in objects]
        if page.next and not (end and page.next >= end):
            document["nextPageToken"] = base64.urlsafe_b64encode(page.next.encode()).decode()
        return JSONResponse(document)

    async def get(self, request: Request, place: Place) -> Response:
        if request.query_params.get("alt") == "media":
            return await self.download(request, place)
        info = await asyncio.to_thread(self._embedded.info, *place[:2], place.project)
        if not _wanted(request, info):
            return Response(status_code=304)
        return JSONResponse(resources.object_(_base(request), place.bucket, info))

    async def download(self, request: Request, place: Place) -> Response:
        descriptor, info = await asyncio.to_thread(self._embedded.open, *place[:2], place.project)
        reading = Reading(descriptor)
        if not _wanted(request, info):
            reading.close()
            return Response(status_code=304)
        headers = _headers(info)
        part = byte_range(request.headers.get("range", ""), info.size)
        start, end = part or (0, info.size)
        headers["Content-Length"] = str(end - start)
        if part:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{info.size}"
        elif known := resources.hashes(info):
            headers["X-Goog-Hash"] = known
        status = 206 if part else 200
        if request.method == "HEAD":
            reading.close()
            return Response(status_code=status, headers=headers)
        reading.use(await asyncio.to_thread(self._embedded.pread, descriptor, info))
        return Download(reading.part(start, end), reading.close, status, headers)

    async def delete(self, request: Request, place: Place) -> Response:
        info = await asyncio.to_thread(self._embedded.info, *place[:2], place.project)
        _wanted(request, info)
        expect = info.generation if "ifGenerationMatch" in request.query_params else None
        await asyncio.to_thread(self._embedded.delete, *place[:2], place.project, expect)
        return Response(status_code=204)

    async def patch(self, request: Request, place: Place) -> Response:
        """Type and metadata; other fields are taken note of by nobody."""
        document = await _document(request)
        before = await asyncio.to_thread(self._embedded.info, *place[:2], place.project)
        _wanted(request, before)
        facts: dict[str, str] = {} if request.method == "PUT" else dict(before.metadata)
        given = document.get("metadata")
        if given is not None and not isinstance(given, dict):
            raise Invalid("metadata must be an object of names and texts", field="metadata")
        for name in given or ():
            facts.pop(name, None)  # null takes a name away
        facts = {} if "metadata" in document and given is None else facts | text_fields(document)
        kind = document.get("contentType")
        info = await self._copy(
            place, place, kind if isinstance(kind, str) else None, facts, before.generation
        )
        return JSONResponse(resources.object_(_base(request), place.bucket, info))

    async def copy(self, request: Request, source: Place, target: Place, rewrite: bool) -> Response:
        document = await _document(request)
        before = await asyncio.to_thread(self._embedded.info, *source[:2], source.project)
        _check_generation(generation(request, "sourceGeneration"), before)
        _check_match(generation(request, "ifSourceGenerationMatch"), before)
        kind = document.get("contentType")
        facts = text_fields(document) if "metadata" in document else None
        info = await self._copy(
            source,
            target,
            kind if isinstance(kind, str) else None,
            facts,
            generation(request, "ifGenerationMatch"),
        )
        resource = resources.object_(_base(request), target.bucket, info)
        if not rewrite:
            return JSONResponse(resource)
        size = str(info.size)
        done = {"kind": "storage#rewriteResponse", "done": True, "objectSize": size}
        return JSONResponse(done | {"totalBytesRewritten": size, "resource": resource})

    async def compose(self, request: Request, place: Place) -> Response:
        document = await _document(request)
        sources = document.get("sourceObjects")
        if not isinstance(sources, list) or not 0 < len(sources) <= _MOST_COMPOSED:
            raise Invalid(f"sourceObjects must name 1 to {_MOST_COMPOSED} objects", field="sourceObjects")
        names = [one.get("name") if isinstance(one, dict) else None for one in sources]
        if not all(isinstance(name, str) and name for name in names):
            raise Invalid("each of sourceObjects must have a name", field="sourceObjects")
        target = document.get("destination")
        facts = target if isinstance(target, dict) else {}
        expect = generation(request, "ifGenerationMatch")
        info = await asyncio.to_thread(self._compose, place, [str(name) for name in names], facts, expect)
        return JSONResponse(resources.object_(_base(request), place.bucket, info))

    async def _copy(
        self,
        source: Place,
        target: Place,
        kind: str | None,
        facts: dict[str, str] | None,
        expect: int | None,
    ) -> Info:
        try:
            return await asyncio.to_thread(
                self._embedded.copy,
                *source[:2],
                *target[:2],
                source.project,
                kind,
                facts,
                expectation(expect),
            )
        except (AlreadyExists, WrongState) as error:
            raise Precondition(error.message) from None

    def _compose(self, place: Place, names: list[str], facts: dict, expect: int | None) -> Info:
        kind = facts.get("contentType")
        writer = self._embedded.writer(
            place.bucket,
            place.key,
            place.project,
            kind if isinstance(kind, str) else "",
            text_fields(facts),
            expectation(expect),
        )
        try:
            for name in names:
                descriptor, info = self._embedded.open(place.bucket, name, place.project)
                with open(descriptor, "rb"):
                    if info.crc32c and not info.sealed:
                        writer.take(descriptor, info.size, info.crc32c)
                        continue
                    pread, at = self._embedded.pread(descriptor, info), 0
                    while piece := pread(1 << 20, at):
                        writer.write(piece)
                        at += len(piece)
            return writer.commit()
        except KeyGone:
            raise
        except (AlreadyExists, WrongState) as error:
            raise Precondition(error.message) from None
        finally:
            writer.abort()


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")


async def _document(request: Request) -> dict:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST_DOCUMENT:
            raise TooLarge(f"the request is longer than {_LARGEST_DOCUMENT} bytes")
    return multipart.metadata(body)


def _wanted(request: Request, info: Info) -> bool:
    """Whether to answer with what is there. Raises NotFound or Precondition if something else was asked for."""
    _check_generation(generation(request, "generation"), info)
    _check_match(generation(request, "ifGenerationMatch"), info)
    return generation(request, "ifGenerationNotMatch") != info.generation


def _check_generation(wanted: int | None, info: Info) -> None:
    if wanted not in (None, info.generation):
        raise NotFound(f"{info.key!r} has no generation {wanted}: older ones are not kept")


def _check_match(wanted: int | None, info: Info) -> None:
    if wanted not in (None, info.generation):
        raise Precondition(f"{info.key!r} has the generation {info.generation}, not {wanted}")


def _headers(info: Info) -> dict[str, str]:
    """A browser shall not take an object for a page of the service's."""
    return {
        "Content-Type": info.content_type.encode("ascii", "replace").decode(),
        "Content-Disposition": "attachment",
        "Content-Security-Policy": "sandbox",
        "X-Content-Type-Options": "nosniff",
        "Accept-Ranges": "bytes",
        "Cache-Control": "no-store",
        "ETag": f'"{info.etag}"',
        "Last-Modified": formatdate(info.modified // 1_000_000_000, usegmt=True),
        "X-Goog-Generation": str(info.generation),
        "X-Goog-Metageneration": "1",
        "X-Goog-Storage-Class": "STANDARD",
        "X-Goog-Stored-Content-Encoding": "identity",
        "X-Goog-Stored-Content-Length": str(info.size),
    }


def _unspell(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token).decode()
    except (binascii.Error, ValueError):
        raise Invalid(f"{token!r} is not a page token of this service's", field="pageToken") from None


def _just_before(key: str) -> str:
    """The listing begins after a key, and startOffset means from one on."""
    last = ord(key[-1]) - 1
    return key[:-1] + (
        chr(last if not 0xD800 <= last <= 0xDFFF else 0xD7FF) + "\U0010ffff" if last > 0 else ""
    )
