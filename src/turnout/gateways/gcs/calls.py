"""The calls for buckets and for existing objects."""

from email.utils import formatdate
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnout import pools
from turnout.bodies import Bodies
from turnout.errors import AlreadyExists, Invalid, NotFound, WrongState
from turnout.gateways import page_token
from turnout.gateways.gcs import resources, unsupported
from turnout.gateways.gcs.errors import Precondition
from turnout.gateways.gcs.glob import Glob
from turnout.gateways.gcs.sessions import ObjectRef
from turnout.gateways.gcs.upload import expectation, generation, read_document, text_fields, whole_number
from turnout.service.download import Download
from turnout.storage import KeyGone
from turnout.storage.embedded.objects import EmbeddedStore, Info, ObjectPage
from turnout.storage.streams import PIECE, FileStream, byte_range

_MAX_RESULTS = 1000
_MAX_COMPOSED = 32
_MAX_PAGES = 10
"""The maximum number of pages that one request for a list with a pattern reads."""


class _ComposePart(NamedTuple):
    """An object that becomes a part of another one."""

    name: str
    generation: int | None
    expected: int | None


class Calls:
    def __init__(self, embedded: EmbeddedStore, bodies: Bodies) -> None:
        self._embedded = embedded
        self._bodies = bodies

    async def list_buckets(self, request: Request, project: str) -> Response:
        prefix = request.query_params.get("prefix", "")
        found = await pools.disk.run(project, self._embedded.buckets, project)
        items = [resources.bucket(_base(request), name, at) for name, at in found if name.startswith(prefix)]
        return JSONResponse({"kind": "storage#buckets", "items": items})

    async def make_bucket(self, request: Request, project: str) -> Response:
        document = await read_document(self._bodies, request, project)
        unsupported.check_bucket(document)
        name = document.get("name")
        if not isinstance(name, str):
            raise Invalid("the bucket needs a name", field="name")
        await pools.disk.run(project, self._embedded.make_bucket, name, project)
        return await self.bucket(request, ObjectRef(name, "", project))

    async def bucket(self, request: Request, ref: ObjectRef) -> Response:
        await self._check_bucket(ref)
        name = await pools.disk.run(ref.project, self._embedded.real_name, ref.bucket)
        created = dict(await pools.disk.run(ref.project, self._embedded.buckets, ref.project)).get(name)
        if created is None:
            raise NotFound(f"there is no bucket {ref.bucket!r}")
        return JSONResponse(resources.bucket(_base(request), ref.bucket, created))

    async def change_bucket(self, request: Request, ref: ObjectRef) -> Response:
        """Changes nothing. Refuses fields that are not supported, and ignores those without effect, such as labels."""
        unsupported.check_bucket(await read_document(self._bodies, request, ref.project))
        return await self.bucket(request, ref)

    async def storage_layout(self, request: Request, ref: ObjectRef) -> Response:
        """Clients request it before they write, to check that the bucket has no folders of its own."""
        await self._check_bucket(ref)
        return JSONResponse(resources.storage_layout(ref.bucket))

    async def managed_folders(self, request: Request, ref: ObjectRef) -> Response:
        """Always empty. gcloud lists managed folders before it deletes recursively."""
        await self._check_bucket(ref)
        return JSONResponse({"kind": "storage#managedFolders", "items": []})

    async def remove_bucket(self, request: Request, ref: ObjectRef) -> Response:
        await pools.disk.run(ref.project, self._embedded.remove_bucket, ref.bucket, ref.project)
        return Response(status_code=204)

    async def objects(self, request: Request, ref: ObjectRef) -> Response:
        query = request.query_params
        start = query.get("startOffset", "")
        after = _decode_token(query.get("pageToken", "")) or (_just_before(start) if start else "")
        limit = min(generation(request, "maxResults") or _MAX_RESULTS, _MAX_RESULTS)
        glob = Glob(query["matchGlob"]) if query.get("matchGlob") else None
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        page = await pools.disk.run(ref.project, self._list, ref, prefix, delimiter, after, limit, glob)
        end = query.get("endOffset", "")
        objects = [info for info in page.objects if not end or info.key < end]
        prefixes = [name for name in page.prefixes if not end or name < end]
        document: resources.Document = {"kind": "storage#objects"}
        if prefixes:
            document["prefixes"] = prefixes
        base = _base(request)
        document["items"] = [resources.object_(base, ref.bucket, info) for info in objects]
        if page.next and not (end and page.next >= end):
            document["nextPageToken"] = page_token.encode(page.next)
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def get(self, request: Request, ref: ObjectRef) -> Response:
        if request.query_params.get("alt") == "media":
            return await self.download(request, ref)
        info = await pools.disk.run(ref.project, self._embedded.info, *ref[:2], ref.project)
        if not _matches(request, info):
            return Response(status_code=304)
        return JSONResponse(resources.object_(_base(request), ref.bucket, info))

    async def download(self, request: Request, ref: ObjectRef) -> Response:
        most = PIECE if request.method == "GET" else -1
        opened = await pools.disk.run(ref.project, self._embedded.read, *ref[:2], ref.project, most)
        info, reading = opened.info, FileStream(opened.file, ref.project)
        if info.sealed:
            reading.use(opened.pread)
        if not _matches(request, info):
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
        if opened.content is not None:
            return Response(opened.content[start:end], status, headers)
        return Download(reading.part(start, end), reading.close, status, headers)

    async def delete(self, request: Request, ref: ObjectRef) -> Response:
        info = await pools.disk.run(ref.project, self._embedded.info, *ref[:2], ref.project)
        _matches(request, info)
        expect = info.generation if "ifGenerationMatch" in request.query_params else None
        await pools.disk.run(ref.project, self._embedded.delete, *ref[:2], ref.project, expect)
        return Response(status_code=204)

    async def patch(self, request: Request, ref: ObjectRef) -> Response:
        """Changes content type and metadata. Other fields are ignored."""
        document = await read_document(self._bodies, request, ref.project)
        unsupported.check_object(document)
        before = await pools.disk.run(ref.project, self._embedded.info, *ref[:2], ref.project)
        _matches(request, before)
        metadata: dict[str, str] = {} if request.method == "PUT" else dict(before.metadata)
        given = document.get("metadata")
        if given is not None and not isinstance(given, dict):
            raise Invalid("metadata must be an object of names and texts", field="metadata")
        for name in given or ():
            metadata.pop(name, None)  # null removes a name
        metadata = {} if "metadata" in document and given is None else metadata | text_fields(document)
        content_type = document.get("contentType")
        info = await self._copy(
            ref, ref, content_type if isinstance(content_type, str) else None, metadata, before.generation
        )
        return JSONResponse(resources.object_(_base(request), ref.bucket, info))

    async def copy(self, request: Request, source: ObjectRef, target: ObjectRef, rewrite: bool) -> Response:
        document = await read_document(self._bodies, request, source.project)
        unsupported.check_object(document)
        before = await pools.disk.run(source.project, self._embedded.info, *source[:2], source.project)
        _check_generation(generation(request, "sourceGeneration"), before)
        _check_match(generation(request, "ifSourceGenerationMatch"), before)
        content_type = document.get("contentType")
        metadata = text_fields(document) if "metadata" in document else None
        info = await self._copy(
            source,
            target,
            content_type if isinstance(content_type, str) else None,
            metadata,
            generation(request, "ifGenerationMatch"),
        )
        resource = resources.object_(_base(request), target.bucket, info)
        if not rewrite:
            return JSONResponse(resource)
        size = str(info.size)
        done = {"kind": "storage#rewriteResponse", "done": True, "objectSize": size}
        return JSONResponse(done | {"totalBytesRewritten": size, "resource": resource})

    async def compose(self, request: Request, ref: ObjectRef) -> Response:
        document = await read_document(self._bodies, request, ref.project)
        sources = document.get("sourceObjects")
        if not isinstance(sources, list) or not 0 < len(sources) <= _MAX_COMPOSED:
            raise Invalid(f"sourceObjects must name 1 to {_MAX_COMPOSED} objects", field="sourceObjects")
        parts = [_composed(source) for source in sources]
        target = document.get("destination")
        destination = target if isinstance(target, dict) else {}
        unsupported.check_object(destination)
        expect = generation(request, "ifGenerationMatch")
        info = await pools.copies.run(ref.project, self._compose, ref, parts, destination, expect)
        return JSONResponse(resources.object_(_base(request), ref.bucket, info))

    def _list(
        self, ref: ObjectRef, prefix: str, delimiter: str, after: str, limit: int, glob: Glob | None
    ) -> ObjectPage:
        """With a pattern, a page may have fewer entries than the limit, or none, and still not be the last one."""
        if glob is None:
            return self._embedded.list(ref.bucket, ref.project, prefix, delimiter, after, limit)
        if glob.prefix.startswith(prefix) and not delimiter:
            prefix = glob.prefix
        for _ in range(_MAX_PAGES):
            page = self._embedded.list(ref.bucket, ref.project, prefix, delimiter, after, limit)
            objects = [info for info in page.objects if glob.matches(info.key)]
            prefixes = [
                name for name in page.prefixes if glob.matches(name) or glob.matches(name.rstrip("/"))
            ]
            after = page.next
            if objects or prefixes or not after:
                return ObjectPage(objects, prefixes, after)
        return ObjectPage([], [], after)

    async def _check_bucket(self, ref: ObjectRef) -> None:
        """As at Google, another project's bucket gives 403, and a missing one 404."""
        if not await pools.disk.run(ref.project, self._embedded.has_bucket, ref.bucket, ref.project):
            raise NotFound(f"there is no bucket {ref.bucket!r}")

    async def _copy(
        self,
        source: ObjectRef,
        target: ObjectRef,
        content_type: str | None,
        metadata: dict[str, str] | None,
        expect: int | None,
    ) -> Info:
        try:
            return await pools.copies.run(
                source.project,
                self._embedded.copy,
                *source[:2],
                *target[:2],
                source.project,
                content_type,
                metadata,
                expectation(expect),
            )
        except (AlreadyExists, WrongState) as error:
            raise Precondition(error.message) from None

    def _compose(
        self, ref: ObjectRef, parts: list[_ComposePart], destination: dict, expect: int | None
    ) -> Info:
        content_type = destination.get("contentType")
        writer = self._embedded.writer(
            ref.bucket,
            ref.key,
            ref.project,
            content_type if isinstance(content_type, str) else "",
            text_fields(destination),
            expectation(expect),
        )
        try:
            for part in parts:
                descriptor, info = self._embedded.open(ref.bucket, part.name, ref.project)
                with open(descriptor, "rb"):
                    _check_generation(part.generation, info)
                    _check_match(part.expected, info)
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


def _composed(source: Any) -> _ComposePart:
    name = source.get("name") if isinstance(source, dict) else None
    if not isinstance(name, str) or not name:
        raise Invalid("each of sourceObjects must have a name", field="sourceObjects")
    conditions = source.get("objectPreconditions")
    expected = conditions.get("ifGenerationMatch") if isinstance(conditions, dict) else None
    return _ComposePart(name, _generation(source.get("generation")), _generation(expected))


def _generation(value: Any) -> int | None:
    return None if value is None else whole_number(str(value), "generation")


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _matches(request: Request, info: Info) -> bool:
    """Checks the conditions of the request. False for 304 Not Modified. Raises NotFound or Precondition."""
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
    """Includes headers that keep a browser from running an object as a page of the service."""
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


def _decode_token(token: str) -> str:
    key = page_token.decode(token)
    if token and not key:
        raise Invalid(f"{token!r} is not a page token of this service", field="pageToken")
    return key


def _just_before(key: str) -> str:
    """The last key before this one: lists begin after a key, but startOffset includes its key."""
    last = ord(key[-1]) - 1
    return key[:-1] + (
        chr(last if not 0xD800 <= last <= 0xDFFF else 0xD7FF) + "\U0010ffff" if last > 0 else ""
    )
