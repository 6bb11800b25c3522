"""Put, get, head, delete and copy."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable
from urllib.parse import unquote

from turnout.errors import Invalid, NotFound, TurnoutError
from turnout.gateways.s3 import conditions, times, xml
from turnout.gateways.s3.call import ClientDisconnected, Headers, S3Call
from turnout.gateways.s3.errors import S3Error, translate
from turnout.storage.embedded.objects import Info
from turnout.storage.streams import PIECE, ReadAhead

_META = "x-amz-meta-"
_PRINTABLE = re.compile(r"[\x20-\x7e\xa0-\xff]*")
_RESPONSE_HEADERS = {
    f"response-{name}": name
    for name in (
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-type",
        "expires",
    )
}


async def put(call: S3Call) -> None:
    expect = conditions.expected(call.request)
    kind, metadata = written_headers(call)
    writer = await call.run(
        call.store.writer, call.bucket, call.key, call.project, kind, metadata, expect=expect
    )
    try:
        body = await call.receive_body(writer)

        def finish() -> tuple[Headers, Info]:
            return body.finish(), writer.commit()

        checksums, info = await call.run(finish)
    finally:
        await call.run(writer.abort)
    await call.reply(200, {"etag": f'"{info.etag}"'} | checksums)


async def head(call: S3Call) -> None:
    info = await call.run(call.store.info, call.bucket, call.key, call.project)
    conditions.check(call.request, info)
    status, headers, _ = _head(call, info)
    await call.start(status, headers)
    await call.send(b"", more=False)


async def get(call: S3Call) -> None:
    part = call.request.header("range")
    opened = await call.run(call.store.read, call.bucket, call.key, call.project, PIECE, part)
    try:
        conditions.check(call.request, opened.info)
        status, headers, (begin, end) = _head(call, opened.info)
        if opened.content is None and call.sends_files and opened.plain:
            await call.start(status, headers)
            await call.while_allowed(call.send_file(opened.file, begin, end))
        elif opened.content is None:
            await call.while_allowed(_stream(call, opened.pread, status, headers, begin, end))
        else:
            await call.start(status, headers)
            await call.send(opened.content[begin:end], more=False)
    finally:
        opened.close()


async def delete(call: S3Call) -> None:
    conditions.refuse_for_delete(call.request)
    with contextlib.suppress(NotFound):
        await call.run(call.store.delete, call.bucket, call.key, call.project)
    await call.check_bucket()
    await call.reply(204)


async def copy(call: S3Call) -> None:
    bucket, key = copy_source(call)
    expect = conditions.expected(call.request)
    kind, metadata = None, None
    if call.request.header("x-amz-metadata-directive").upper() == "REPLACE":
        kind, metadata = written_headers(call)
    call.source_bucket = bucket
    source = await call.run(call.store.info, bucket, key, call.project)
    conditions.check(call.request, source, "x-amz-copy-source-")

    def work() -> str:
        info = call.store.copy(bucket, key, call.bucket, call.key, call.project, kind, metadata, expect)
        return copied("CopyObjectResult", info.etag, info.modified)

    await call.reply_late(work, lambda error: late_error(call, error))


def written_headers(call: S3Call) -> tuple[str, dict[str, str]]:
    """Content type and metadata of the new object."""
    return call.request.header("content-type"), custom_metadata(call.request.headers)


def custom_metadata(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The metadata among the headers of a request or the fields of a form."""
    return {name.removeprefix(_META): value for name, value in fields if name.startswith(_META)}


def copy_source(call: S3Call) -> tuple[str, str]:
    path, _, version = (
        unquote(call.request.header("x-amz-copy-source")).removeprefix("/").partition("?versionId=")
    )
    bucket, _, key = path.partition("/")
    if version not in ("", "null") or not key:
        raise S3Error(
            "InvalidArgument", "x-amz-copy-source must be <bucket>/<key>; there are no versions here."
        )
    return bucket, key


def copied(name: str, etag: str, modified: int) -> str:
    return (
        f"<{name} {xml.NAMESPACE}><LastModified>{times.iso(modified)}</LastModified>"
        f"<ETag>&quot;{etag}&quot;</ETag></{name}>"
    )


def late_error(call: S3Call, error: Exception) -> str:
    """The document for an error that happens after the status was sent."""
    match error:
        case S3Error():
            known = error
        case TurnoutError():
            known = translate(error)
        case _:
            known = S3Error("InternalError", "Internal error; try again.")
    return xml.failure(known, f"/{call.bucket}/{call.key}", call.request_id)


def _head(call: S3Call, info: Info) -> tuple[int, Headers, tuple[int, int]]:
    """The status, the headers, and the range of bytes to send."""
    part = conditions.span(call.request.header("range"), info.size)
    begin, end = part or (0, info.size)
    headers = {
        "etag": f'"{info.etag}"',
        "last-modified": times.http(info.modified),
        "accept-ranges": "bytes",
        "content-type": info.content_type,
        "content-length": str(end - begin),
    }
    headers |= {_META + name: value for name, value in info.metadata.items()}
    if part:
        headers["content-range"] = f"bytes {begin}-{end - 1}/{info.size}"
    elif info.crc32c and call.request.header("x-amz-checksum-mode").upper() == "ENABLED":
        headers |= {"x-amz-checksum-crc32c": info.crc32c, "x-amz-checksum-type": "FULL_OBJECT"}
    for name, value in call.request.query:
        if name in _RESPONSE_HEADERS:
            if not _PRINTABLE.fullmatch(value):
                raise Invalid(f"{name} has a character that a header cannot have")
            headers[_RESPONSE_HEADERS[name]] = value
    return 206 if part else 200, headers, (begin, end)


async def _stream(
    call: S3Call, pread: Callable[[int, int], bytes], status: int, headers: Headers, begin: int, end: int
) -> None:
    piece = await call.run(pread, min(PIECE, end - begin), begin) if begin < end else b""
    await call.start(status, headers)
    disconnected = asyncio.ensure_future(call.disconnected())
    ahead = ReadAhead()
    try:
        while True:
            begin += len(piece)
            if begin >= end:
                await call.send(piece, more=False)
                return
            if not piece or disconnected.done():
                raise ClientDisconnected  # or a job has truncated the file: the client notices the missing bytes
            size = ahead.next(len(piece), end - begin)
            next_piece = asyncio.ensure_future(call.run(pread, size, begin)) if size else None
            try:
                await call.send(piece)
            finally:
                if next_piece:  # The file is closed after this, and its descriptor may be reused.
                    await asyncio.wait((next_piece,))
            piece = (
                next_piece.result() if next_piece else await call.run(pread, min(PIECE, end - begin), begin)
            )
    finally:
        ahead.close()
        disconnected.cancel()
