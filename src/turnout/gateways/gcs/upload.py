"""The three kinds of uploads: media, multipart and resumable."""

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, ParamSpec, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from turnout import pools
from turnout.access import FindsKeys
from turnout.access.revoked import unless_revoked
from turnout.access.sigv4 import UNSIGNED
from turnout.bodies import Bodies, known, read_body
from turnout.errors import AlreadyExists, Invalid, TooLarge, Unauthenticated, WrongState
from turnout.gateways.gcs import multipart, resources, unsupported
from turnout.gateways.gcs.errors import Precondition
from turnout.gateways.gcs.sessions import ObjectRef, Session, UploadSessions, UploadTarget
from turnout.storage.clients import ClientBuckets, ObjectWriter
from turnout.storage.embedded.objects import Expect, Info
from turnout.storage.streams import write_all

P = ParamSpec("P")
T = TypeVar("T")

_MAX_DOCUMENT = 1 << 20
_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)")


class Uploads:
    def __init__(self, store: ClientBuckets, bodies: Bodies, keys: FindsKeys) -> None:
        self._buckets = store
        self._bodies = bodies
        self._keys = keys
        self._sessions = UploadSessions(store.uploads)

    async def begin(self, request: Request, bucket: str, project: str, key: str) -> Response:
        """POST: a whole upload, or the start of a session."""
        match request.query_params.get("uploadType", ""):
            case "media":
                return await unless_revoked(self._keys, key, self._media(request, bucket, project))
            case "multipart":
                return await unless_revoked(self._keys, key, self._multipart(request, bucket, project))
            case "resumable":
                return await self._resumable(request, bucket, project, key)
            case _:
                raise Invalid("uploadType must be one of media, multipart, resumable")

    async def resume(self, request: Request) -> Response:
        """PUT to a session: more bytes, or a query of how many have arrived."""
        session = await pools.disk.run(
            pools.OWN, self._sessions.find, request.query_params.get("upload_id", "")
        )
        key = session.target.made_by
        if key and self._keys.find(key) is None:
            raise Unauthenticated("the key that began this upload was revoked: begin the upload again")
        return await unless_revoked(self._keys, key, self._resume(request, session))

    async def _resume(self, request: Request, session: Session) -> Response:
        async with session.lock:
            done = session.response()
            if done is not None:
                return JSONResponse(done)
            start, end, total = _content_range(request)
            if start is not None:
                most = session.target.sizes[1] if session.target.sizes else None
                async with self._bodies.upload(session.target.project, request.stream()) as body:
                    await session.append(start, body, end, most)
                _check_arrived(session, end)
            if "content-range" not in request.headers:
                total = session.size()
            if total is None or session.size() < total:
                return _incomplete(await pools.disk.run(session.target.project, session.safe_size))
            if session.size() > total:
                raise Invalid(f"{session.size()} bytes have arrived, more than the {total} of Content-Range")
            _check_size(session.target, total, complete=True)
            given = session.target.hashes | _hash_header(request)
            pool = self._buckets.pool(session.target.bucket, long=True)
            info = await pool.run(session.target.project, self._complete, session, given)
            response = resources.object_(session.target.base, session.target.bucket, info)
            await pools.disk.run(session.target.project, session.complete, response)
            self._sessions.release(session)
            return JSONResponse(response)

    async def cancel(self, request: Request) -> Response:
        """DELETE of a session. Google answers 499."""
        await pools.disk.run(pools.OWN, self._sessions.cancel, request.query_params.get("upload_id", ""))
        return Response(status_code=499)

    async def put(self, request: Request, ref: ObjectRef, payload: str) -> Response:
        """PUT of the XML API. `payload`: the SHA-256 that the body must have, or UNSIGNED-PAYLOAD."""
        target = _target_of_headers(request, ref)
        digest = None if payload == UNSIGNED else hashlib.sha256()
        async with self._bodies.upload(ref.project, request.stream()) as body:
            info = await self._stored(target, body, digest, payload)
        headers = {
            "ETag": f'"{info.etag}"',
            "X-Goog-Generation": str(info.generation),
            "X-Goog-Metageneration": "1",
        }
        return Response(status_code=200, headers=headers | {"X-Goog-Hash": resources.hashes(info)})

    async def start(self, request: Request, ref: ObjectRef, key: str) -> Response:
        """POST of the XML API: the start of a session."""
        target = _target_of_headers(request, ref)
        target.made_by = key
        name, address = await self._open_session(target)
        return Response(status_code=201, headers={"Location": address, "X-GUploader-UploadID": name})

    async def _media(self, request: Request, bucket: str, project: str) -> Response:
        kind = request.headers.get("content-type", "")
        target = _target(request, bucket, project, {}, kind)
        async with self._bodies.upload(project, request.stream()) as body:
            return await self._store(target, body)

    async def _multipart(self, request: Request, bucket: str, project: str) -> Response:
        content_type = request.headers.get("content-type", "")
        async with self._bodies.upload(project, request.stream()) as body:
            document, kind, media = await multipart.split(content_type, body)
            return await self._store(_target(request, bucket, project, document, kind), media)

    async def _resumable(self, request: Request, bucket: str, project: str, key: str) -> Response:
        document = await read_document(self._bodies, request, project)
        kind = request.headers.get("x-upload-content-type", "")
        target = _target(request, bucket, project, document, kind)
        target.made_by = key
        name, address = await self._open_session(target)
        return Response(status_code=200, headers={"Location": address, "X-GUploader-UploadID": name})

    async def _open_session(self, target: UploadTarget) -> tuple[str, str]:
        """The id and the address of a new session."""
        # Reports errors before the client sends the bytes.
        (await self._run(target, self._writer, target)).abort()
        name = await pools.disk.run(target.project, self._sessions.begin, target)
        address = f"{target.base}/upload/storage/v1/b/{target.bucket}/o?uploadType=resumable&upload_id={name}"
        return name, address

    async def _store(self, target: UploadTarget, body: AsyncIterator[bytes]) -> Response:
        info = await self._stored(target, body)
        return JSONResponse(resources.object_(target.base, target.bucket, info))

    async def _stored(
        self, target: UploadTarget, body: AsyncIterator[bytes], digest: Any = None, sha256: str = ""
    ) -> Info:
        """`digest`: computes the SHA-256 that must be `sha256`."""
        writer = await self._run(target, self._writer, target)
        size = 0

        def write(data: bytes) -> None:
            nonlocal size
            size += len(data)
            _check_size(target, size, complete=False)
            if digest:
                digest.update(data)
            writer.write(data)

        try:
            await write_all(body, write, target.project)
            _check_size(target, size, complete=True)
            if digest and not hmac.compare_digest(digest.hexdigest(), sha256.lower()):
                raise Invalid(
                    "the SHA-256 of the body is not that of x-goog-content-sha256: nothing was stored"
                )
            _check_hashes(target.hashes, writer.crc32c, writer.md5 or "")
            return await self._run(target, _commit, writer)
        finally:
            await pools.disk.run(target.project, writer.abort)

    async def _run(
        self, target: UploadTarget, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Calls the function in a thread."""
        return await self._buckets.pool(target.bucket).run(target.project, function, *args, **kwargs)

    def _complete(self, session: Session, given: dict[str, str]) -> Info:
        checksums = session.checksums()
        _check_hashes(given, checksums.crc32c, checksums.md5)
        writer = self._writer(session.target)
        try:
            with open(session.data, "rb") as file:
                os.fsync(file.fileno())
                writer.take(file.fileno(), checksums.size, checksums.crc32c)
            return _commit(writer, checksums.md5)
        finally:
            writer.abort()

    def _writer(self, target: UploadTarget) -> ObjectWriter:
        expect = expectation(target.expect)
        return self._buckets.writer(
            target.bucket, target.key, target.project, target.content_type, target.metadata, expect
        )


async def read_document(bodies: Bodies, request: Request, project: str) -> dict:
    """Reads a JSON body."""
    with bodies.open(known(project)) as reservation:
        body = await read_body(
            reservation,
            dict(request.scope["headers"]),
            request.receive,
            _MAX_DOCUMENT,
            too_large="the request is longer than {limit} bytes",
        )
        if body is None:
            raise ClientDisconnect
        return multipart.metadata(body)


def expectation(generation: int | None) -> Expect:
    """From ifGenerationMatch, where 0 means that the object must not exist."""
    return "absent" if generation == 0 else generation


def generation(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    return None if text is None else whole_number(text, name)


def whole_number(text: str, name: str) -> int:
    if not re.fullmatch(r"\d{1,20}", text, re.ASCII):
        raise Invalid(f"{name} must be a whole number, not {text!r}", field=name)
    return int(text)


def text_fields(document: dict) -> dict[str, str]:
    """The custom metadata of an object."""
    given = document.get("metadata") or {}
    if not isinstance(given, dict):
        raise Invalid("metadata must be an object of names and texts", field="metadata")
    return {str(name): str(value) for name, value in given.items() if value is not None}


def _target(request: Request, bucket: str, project: str, document: dict, kind: str) -> UploadTarget:
    unsupported.check_object(document)
    key = request.query_params.get("name") or document.get("name")
    if not isinstance(key, str) or not key:
        raise Invalid("the object needs a name, in the address or in the metadata", field="name")
    given = {"crc32c": document.get("crc32c"), "md5": document.get("md5Hash")}
    hashes = {name: str(value) for name, value in given.items() if value} | _hash_header(request)
    return UploadTarget(
        project=project,
        bucket=bucket,
        key=key,
        content_type=str(document.get("contentType") or kind or ""),
        metadata=text_fields(document),
        hashes=hashes,
        expect=generation(request, "ifGenerationMatch"),
        base=str(request.base_url).rstrip("/"),
    )


def _target_of_headers(request: Request, ref: ObjectRef) -> UploadTarget:
    """The target of a call of the XML API, which has all fields in headers."""
    if request.headers.get("content-encoding", "identity") != "identity":
        unsupported.check_object({"contentEncoding": request.headers["content-encoding"]})
    metadata = {
        name.removeprefix("x-goog-meta-"): value
        for name, value in request.headers.items()
        if name.startswith("x-goog-meta-")
    }
    expect = request.headers.get("x-goog-if-generation-match")
    sizes = request.headers.get("x-goog-content-length-range")
    return UploadTarget(
        project=ref.project,
        bucket=ref.bucket,
        key=ref.key,
        content_type=request.headers.get("content-type", ""),
        metadata=metadata,
        hashes=_hash_header(request),
        expect=None if expect is None else whole_number(expect, "x-goog-if-generation-match"),
        base=str(request.base_url).rstrip("/"),
        sizes=None if sizes is None else _size_range(sizes),
    )


def _size_range(text: str) -> tuple[int, int]:
    name = "x-goog-content-length-range"
    least, _, most = text.partition(",")
    return whole_number(least.strip(), name), whole_number(most.strip(), name)


def _check_size(target: UploadTarget, size: int, complete: bool) -> None:
    """Raises TooLarge, or Invalid."""
    if target.sizes is None:
        return
    if size > target.sizes[1]:
        raise TooLarge(f"{target.key!r} may have {target.sizes[1]} bytes")
    if complete and size < target.sizes[0]:
        raise Invalid(f"{target.key!r} must have at least {target.sizes[0]} bytes, not {size}")


def _hash_header(request: Request) -> dict[str, str]:
    """`X-Goog-Hash: crc32c=…,md5=…` or Content-MD5."""
    found: dict[str, str] = {}
    for header in request.headers.getlist("x-goog-hash"):
        for pair in header.split(","):
            name, _, value = pair.strip().partition("=")
            if name in ("crc32c", "md5"):
                found[name] = value
    if plain := request.headers.get("content-md5"):
        found["md5"] = plain
    return found


def _check_hashes(given: dict[str, str], crc32c: str, md5: str) -> None:
    if given.get("crc32c", crc32c) != crc32c:
        raise Invalid(f"the crc32c of the body is {crc32c}, not {given['crc32c']}: nothing was stored")
    if "md5" not in given:
        return
    try:
        wanted = base64.b64decode(given["md5"], validate=True).hex()
    except (binascii.Error, ValueError):
        wanted = ""
    if wanted != md5:
        raise Invalid(f"the MD5 of the body is {md5}, not {given['md5']}: nothing was stored")


def _commit(writer: ObjectWriter, md5: str = "") -> Info:
    try:
        return writer.commit(md5=md5)
    except (AlreadyExists, WrongState) as error:
        raise Precondition(error.message) from None


def _content_range(request: Request) -> tuple[int | None, int | None, int | None]:
    """(start, end, total) of the body. No start: a status query. No header: the whole object."""
    header = request.headers.get("content-range")
    if header is None:
        return 0, None, None
    found = _RANGE.fullmatch(header)
    if not found:
        raise Invalid(f"Content-Range must be like `bytes 0-99/200` or `bytes */*`, not {header!r}")
    total = None if found[3] == "*" else int(found[3])
    if found[1] is None:
        return None, None, total
    start, end = int(found[1]), int(found[2]) + 1
    length = request.headers.get("content-length", str(end - start))
    if end <= start or (total is not None and end > total) or length != str(end - start):
        raise Invalid(f"Content-Range: {header!r} contradicts itself or the length of the body, {length}")
    return start, end, total


def _check_arrived(session: Session, end: int | None) -> None:
    if end is not None and session.size() < end:
        raise Invalid(f"Content-Range names bytes up to {end}, but only {session.size()} have arrived")


def _incomplete(size: int) -> Response:
    return Response(status_code=308, headers={"Range": f"bytes=0-{size - 1}"} if size else None)
