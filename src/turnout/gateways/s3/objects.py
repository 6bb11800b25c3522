"""Put, get, head, delete and copy."""

import asyncio
import contextlib
import os
import re
from collections.abc import Callable
from urllib.parse import unquote

from turnout.doors.s3 import conditions, times, xml
from turnout.doors.s3.call import PIECE, Call, Gone, Headers
from turnout.doors.s3.errors import S3Error, translate
from turnout.errors import Invalid, NotFound, TurnoutError
from turnout.storage.objects import Info

_META = "x-amz-meta-"
_PRINTABLE = re.compile(r"[\x20-\x7e\xa0-\xff]*")
_ANSWERS = {
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


async def put(call: Call) -> None:
    _refuse_customer_keys(call)
    expect = conditions.expected(call.asked)
    kind, facts = described(call)
    writer = await call.run(
        call.embedded.writer, call.bucket, call.key, call.project, kind, facts, expect=expect
    )
    try:
        body = await call.pour(writer)

        def finish() -> tuple[Headers, Info]:
            return body.finish(), writer.commit()

        checksums, info = await call.run(finish)
    finally:
        await call.run(writer.abort)
    await call.reply(200, {"etag": f'"{info.etag}"'} | checksums)


async def head(call: Call) -> None:
    info = await call.run(call.embedded.info, call.bucket, call.key, call.project)
    conditions.check(call.asked, info)
    status, headers, _ = _about(call, info)
    await call.start(status, headers)
    await call.send(b"", more=False)


async def get(call: Call) -> None:
    file, info = await call.run(call.embedded.open, call.bucket, call.key, call.project)
    try:
        conditions.check(call.asked, info)
        status, headers, (begin, end) = _about(call, info)
        pread = await call.run(call.embedded.pread, file, info)
        await _stream(call, pread, status, headers, begin, end)
    finally:
        os.close(file)


async def delete(call: Call) -> None:
    with contextlib.suppress(NotFound):
        await call.run(call.embedded.delete, call.bucket, call.key, call.project)
    if not await call.run(call.embedded.has_bucket, call.bucket, call.project):
        raise S3Error("NoSuchBucket", f"there is no bucket {call.bucket!r}")
    await call.reply(204)


async def copy(call: Call) -> None:
    _refuse_customer_keys(call)
    bucket, key = copy_source(call)
    expect = conditions.expected(call.asked)
    kind, facts = None, None
    if call.asked.header("x-amz-metadata-directive").upper() == "REPLACE":
        kind, facts = described(call)
    source = await call.run(call.embedded.info, bucket, key, call.project)
    conditions.check(call.asked, source, "x-amz-copy-source-")

    def work() -> str:
        info = call.embedded.copy(bucket, key, call.bucket, call.key, call.project, kind, facts, expect)
        return copied("CopyObjectResult", info.etag, info.modified)

    await call.reply_late(work, lambda error: late(call, error))


def described(call: Call) -> tuple[str, dict[str, str]]:
    """Content type and metadata of what is to be written."""
    headers = call.asked.headers
    facts = {name.removeprefix(_META): value for name, value in headers if name.startswith(_META)}
    return call.asked.header("content-type"), facts


def copy_source(call: Call) -> tuple[str, str]:
    path, _, version = (
        unquote(call.asked.header("x-amz-copy-source")).removeprefix("/").partition("?versionId=")
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


def late(call: Call, error: Exception) -> str:
    """What went wrong after the status was sent."""
    match error:
        case S3Error():
            known = error
        case TurnoutError():
            known = translate(error)
        case _:
            known = S3Error("InternalError", "Something went wrong here; try again.")
    return xml.failure(known, f"/{call.bucket}/{call.key}", call.request_id)


def _about(call: Call, info: Info) -> tuple[int, Headers, tuple[int, int]]:
    """Status, headers and which bytes."""
    part = conditions.span(call.asked.header("range"), info.size)
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
    elif info.crc32c and call.asked.header("x-amz-checksum-mode").upper() == "ENABLED":
        headers |= {"x-amz-checksum-crc32c": info.crc32c, "x-amz-checksum-type": "FULL_OBJECT"}
    for name, value in call.asked.query:
        if name in _ANSWERS:
            if not _PRINTABLE.fullmatch(value):
                raise Invalid(f"{name} has a character in it that no header can have")
            headers[_ANSWERS[name]] = value
    return 206 if part else 200, headers, (begin, end)


async def _stream(
    call: Call, pread: Callable[[int, int], bytes], status: int, headers: Headers, begin: int, end: int
) -> None:
    piece = await call.run(pread, min(PIECE, end - begin), begin) if begin < end else b""
    await call.start(status, headers)
    gone = asyncio.ensure_future(call.gone())
    try:
        while True:
            begin += len(piece)
            if begin >= end:
                await call.send(piece, more=False)
                return
            if not piece or gone.done():
                raise Gone  # or a job has cut the file short: the client sees that bytes are missing
            coming = asyncio.ensure_future(call.run(pread, min(PIECE, end - begin), begin))
            try:
                await call.send(piece)
            finally:
                # The file is closed after this, and its number may soon be another's.
                await asyncio.wait((coming,))
            piece = coming.result()
    finally:
        gone.cancel()


def _refuse_customer_keys(call: Call) -> None:
    if call.asked.header("x-amz-server-side-encryption-customer-algorithm"):
        raise S3Error("NotImplemented", "Encryption with the customer's keys is not supported.")
