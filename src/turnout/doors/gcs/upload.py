"""The three ways in: a bare body, one with its metadata in front, and a session that can be taken up again."""

import asyncio
import base64
import binascii
import os
import re
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnout.doors.gcs import multipart, resources
from turnout.doors.gcs.errors import Precondition
from turnout.doors.gcs.sessions import Session, Sessions, Target
from turnout.errors import AlreadyExists, Invalid, TooLarge, WrongState
from turnout.storage.objects import Embedded, Expect, Info, Writer
from turnout.storage.streams import pour

_LARGEST_METADATA = 1 << 20
_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)")


class Uploads:
    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded
        self._sessions = Sessions(embedded.uploads)

    async def begin(self, request: Request, bucket: str, project: str) -> Response:
        """POST: the whole upload, or the beginning of a session."""
        ways = {"media": self._media, "multipart": self._multipart, "resumable": self._resumable}
        way = ways.get(request.query_params.get("uploadType", ""))
        if way is None:
            raise Invalid(f"uploadType must be one of {', '.join(ways)}")
        return await way(request, bucket, project)

    async def proceed(self, request: Request) -> Response:
        """PUT to a session: more of the object, or a question how much has arrived."""
        session = await asyncio.to_thread(self._sessions.find, request.query_params.get("upload_id", ""))
        async with session.turn:
            done = session.answer()
            if done is not None:
                return JSONResponse(done)
            start, end, total = _content_range(request)
            if start is not None:
                await session.append(start, request.stream(), end)
                _check_arrived(session, end)
            if "content-range" not in request.headers:
                total = session.size()
            if total is None or session.size() < total:
                return _incomplete(await asyncio.to_thread(session.safe_size))
            if session.size() > total:
                raise Invalid(f"{session.size()} bytes have arrived, more than the {total} of Content-Range")
            given = session.target.hashes | _hash_header(request)
            info = await asyncio.to_thread(self._finish, session, given)
            answer = resources.object_(session.target.base, session.target.bucket, info)
            await asyncio.to_thread(session.finish, answer)
            return JSONResponse(answer)

    async def give_up(self, request: Request) -> Response:
        """DELETE of a session; 499 is what Google says."""
        await asyncio.to_thread(self._sessions.drop, request.query_params.get("upload_id", ""))
        return Response(status_code=499)

    async def _media(self, request: Request, bucket: str, project: str) -> Response:
        kind = request.headers.get("content-type", "")
        target = _target(request, bucket, project, {}, kind)
        return await self._store(target, request.stream())

    async def _multipart(self, request: Request, bucket: str, project: str) -> Response:
        document, kind, media = await multipart.split(
            request.headers.get("content-type", ""), request.stream()
        )
        return await self._store(_target(request, bucket, project, document, kind), media)

    async def _resumable(self, request: Request, bucket: str, project: str) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _LARGEST_METADATA:
                raise TooLarge(f"the metadata is longer than {_LARGEST_METADATA} bytes")
        kind = request.headers.get("x-upload-content-type", "")
        target = _target(request, bucket, project, multipart.metadata(body), kind)
        # What cannot be written is told before its bytes are sent.
        (await asyncio.to_thread(self._writer, target)).abort()
        name = await asyncio.to_thread(self._sessions.begin, target)
        place = f"{target.base}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={name}"
        return Response(status_code=200, headers={"Location": place, "X-GUploader-UploadID": name})

    async def _store(self, target: Target, body: AsyncIterator[bytes]) -> Response:
        writer = await asyncio.to_thread(self._writer, target)
        try:
            await pour(body, writer.write)
            _check_hashes(target.hashes, writer.crc32c, writer.md5 or "")
            info = await asyncio.to_thread(_commit, writer)
        finally:
            await asyncio.to_thread(writer.abort)
        return JSONResponse(resources.object_(target.base, target.bucket, info))

    def _finish(self, session: Session, given: dict[str, str]) -> Info:
        sums = session.sums()
        _check_hashes(given, sums.crc32c, sums.md5)
        writer = self._writer(session.target)
        try:
            with open(session.data, "rb") as file:
                os.fsync(file.fileno())
                writer.take(file.fileno(), sums.size, sums.crc32c)
            return _commit(writer, sums.md5)
        finally:
            writer.abort()

    def _writer(self, target: Target) -> Writer:
        expect = expectation(target.expect)
        return self._embedded.writer(
            target.bucket, target.key, target.project, target.content_type, target.metadata, expect
        )


def expectation(generation: int | None) -> Expect:
    """ifGenerationMatch: 0 means that nothing may be there."""
    return "absent" if generation == 0 else generation


def generation(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,20}", text):
        raise Invalid(f"{name} must be a whole number, not {text!r}", field=name)
    return int(text)


def text_fields(document: dict) -> dict[str, str]:
    """The metadata that a client made up itself."""
    given = document.get("metadata") or {}
    if not isinstance(given, dict):
        raise Invalid("metadata must be an object of names and texts", field="metadata")
    return {str(name): str(value) for name, value in given.items() if value is not None}


def _target(request: Request, bucket: str, project: str, document: dict, kind: str) -> Target:
    key = request.query_params.get("name") or document.get("name")
    if not isinstance(key, str) or not key:
        raise Invalid("the object needs a name, in the address or in the metadata", field="name")
    given = {"crc32c": document.get("crc32c"), "md5": document.get("md5Hash")}
    hashes = {name: str(value) for name, value in given.items() if value} | _hash_header(request)
    return Target(
        project=project,
        bucket=bucket,
        key=key,
        content_type=str(document.get("contentType") or kind or ""),
        metadata=text_fields(document),
        hashes=hashes,
        expect=generation(request, "ifGenerationMatch"),
        base=str(request.base_url).rstrip("/"),
    )


def _hash_header(request: Request) -> dict[str, str]:
    """`X-Goog-Hash: crc32c=…,md5=…` or Content-MD5."""
    found: dict[str, str] = {}
    for header in request.headers.getlist("x-goog-hash"):
        for one in header.split(","):
            name, _, value = one.strip().partition("=")
            if name in ("crc32c", "md5"):
                found[name] = value
    if plain := request.headers.get("content-md5"):
        found["md5"] = plain
    return found


def _check_hashes(given: dict[str, str], crc32c: str, md5: str) -> None:
    if given.get("crc32c", crc32c) != crc32c:
        raise Invalid(f"the crc32c of what arrived is {crc32c}, not {given['crc32c']}: nothing was kept")
    if "md5" not in given:
        return
    try:
        wanted = base64.b64decode(given["md5"], validate=True).hex()
    except (binascii.Error, ValueError):
        wanted = ""
    if wanted != md5:
        raise Invalid(f"the MD5 of what arrived is {md5}, not {given['md5']}: nothing was kept")


def _commit(writer: Writer, md5: str = "") -> Info:
    try:
        return writer.commit(md5=md5)
    except (AlreadyExists, WrongState) as error:
        raise Precondition(error.message) from None


def _content_range(request: Request) -> tuple[int | None, int | None, int | None]:
    """(start, end, total) of what is sent; no start: a question, no header: all of it."""
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
        raise Invalid(f"Content-Range: {header!r} does not fit itself or the length of the body, {length}")
    return start, end, total


def _check_arrived(session: Session, end: int | None) -> None:
    if end is not None and session.size() < end:
        raise Invalid(f"Content-Range names bytes up to {end}, but only {session.size()} have arrived")


def _incomplete(size: int) -> Response:
    return Response(status_code=308, headers={"Range": f"bytes=0-{size - 1}"} if size else None)
