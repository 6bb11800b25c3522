"""Uploads in parts: create, part, copy a part, list, complete, abort."""

import contextlib
import hashlib
import itertools
import os
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from turnout.doors.s3 import conditions, parts, times, xml
from turnout.doors.s3.call import PIECE, Call, Headers
from turnout.doors.s3.errors import S3Error
from turnout.doors.s3.objects import copied, copy_source, described, late
from turnout.doors.s3.parts import MOST_PARTS, About, NewPart, Part, Upload
from turnout.errors import NotFound
from turnout.storage.objects import Expect

_SMALLEST = 5 << 20
"""Of all parts but the last, as S3 has it."""


class _Named(NamedTuple):
    number: int
    etag: str


async def create(call: Call) -> None:
    await call.document()
    kind, facts = described(call)

    def begin() -> Upload:
        # As if it were written now, so that what is wrong is said before gigabytes are sent.
        call.embedded.writer(call.bucket, call.key, call.project, kind, facts).abort()
        about = About(call.bucket, call.key, call.project, kind, facts, time.time_ns())
        return parts.begin(call.embedded.uploads(), about)

    upload = await call.run(begin)
    await call.reply_xml(_result("InitiateMultipartUploadResult", upload, ""))


async def put_part(call: Call) -> None:
    number = _number(call)
    part = NewPart(await _find(call), number)
    try:
        body = await call.pour(part)

        def finish() -> Headers:
            checksums = body.finish()
            part.commit()
            return checksums

        checksums = await call.run(finish)
    finally:
        await call.run(part.abort)
    await call.reply(200, {"etag": f'"{part.md5}"'} | checksums)


async def copy_part(call: Call) -> None:
    number, source = _number(call), copy_source(call)
    upload = await _find(call)
    info = await call.run(call.embedded.info, *source, call.project)
    conditions.check(call.asked, info, "x-amz-copy-source-")

    def work() -> str:
        file, info = call.embedded.open(*source, call.project)
        part = NewPart(upload, number)
        try:
            text = call.asked.header("x-amz-copy-source-range")
            pread = call.embedded.pread(file, info)
            _copy(pread, *(conditions.span(text, info.size) or (0, info.size)), part)
            part.commit()
        finally:
            part.abort()
            os.close(file)
        return copied("CopyPartResult", part.md5, time.time_ns())

    await call.reply_late(work, lambda error: late(call, error))


async def list_parts(call: Call) -> None:
    upload = await _find(call)
    after = _count(call, "part-number-marker", 0)
    limit = min(1000, _count(call, "max-parts", 1000))
    found = [part for part in await call.run(upload.parts) if part.number > after]
    shown = found[:limit]
    rows = "".join(
        f"<Part><PartNumber>{part.number}</PartNumber><LastModified>{times.iso(part.modified)}</LastModified>"
        f"<ETag>&quot;{part.md5}&quot;</ETag><Size>{part.size}</Size></Part>"
        for part in shown
    )
    head = (
        f"<PartNumberMarker>{after}</PartNumberMarker><MaxParts>{limit}</MaxParts>"
        f"<NextPartNumberMarker>{shown[-1].number if shown else after}</NextPartNumberMarker>"
        f"<IsTruncated>{'true' if len(found) > len(shown) else 'false'}</IsTruncated>"
    )
    await call.reply_xml(_result("ListPartsResult", upload, head + rows))


async def list_uploads(call: Call) -> None:
    if not await call.run(call.embedded.has_bucket, call.bucket, call.project):
        raise S3Error("NoSuchBucket", f"there is no bucket {call.bucket!r}")
    prefix = call.asked.param("prefix") or ""

    def find() -> list[Upload]:
        return list(parts.unfinished(call.embedded.uploads(), call.bucket, call.project))

    found = [one for one in await call.run(find) if one.about.key.startswith(prefix)]
    rows = "".join(
        f"<Upload><Key>{xml.spell(one.about.key)}</Key><UploadId>{one.id}</UploadId>"
        f"<Initiated>{times.iso(one.about.made)}</Initiated></Upload>"
        for one in found
    )
    await call.reply_xml(
        f"<ListMultipartUploadsResult {xml.NAMESPACE}><Bucket>{call.bucket}</Bucket><IsTruncated>false</IsTruncated>"
        f"{rows}</ListMultipartUploadsResult>"
    )


async def complete(call: Call) -> None:
    named = _named(await call.document())
    expect = conditions.expected(call.asked)
    etag = _etag(named)
    try:
        upload = await _find(call)
    except S3Error:
        if not await _is_there(call, etag):
            raise
        await call.reply_xml(_completed(call, etag))  # asked again, as the first answer was lost
        return

    def work() -> str:
        _join(call, upload, named, etag, expect)
        return _completed(call, etag)

    await call.reply_late(work, lambda error: late(call, error))


async def abort(call: Call) -> None:
    upload = await _find(call)
    await call.run(upload.remove)
    await call.reply(204)


async def _find(call: Call) -> Upload:
    upload_id = call.asked.param("uploadId") or ""
    return await call.run(
        lambda: parts.find(call.embedded.uploads(), upload_id, call.bucket, call.key, call.project)
    )


def _number(call: Call) -> int:
    number = _count(call, "partNumber", 0)
    if not 1 <= number <= MOST_PARTS:
        raise S3Error("InvalidArgument", f"partNumber must be from 1 to {MOST_PARTS}.")
    return number


def _count(call: Call, name: str, default: int) -> int:
    text = call.asked.param(name) or str(default)
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise S3Error("InvalidArgument", f"{name} must be a number.")
    return int(text)


def _copy(pread: Callable[[int, int], bytes], begin: int, end: int, part: NewPart) -> None:
    while begin < end:
        piece = pread(min(PIECE, end - begin), begin)
        if not piece:
            raise S3Error("PreconditionFailed", "The source has become shorter while it was being copied.")
        part.write(piece)
        begin += len(piece)


def _named(text: bytes) -> list[_Named]:
    root = xml.parse(text)
    named: list[_Named] = []
    for one in root.findall("Part"):
        number, etag = xml.value(one, "PartNumber").strip(), xml.value(one, "ETag").strip().strip('"')
        if not number.isascii() or not number.isdecimal() or len(number) > 5 or len(etag) != 32:
            raise S3Error(
                "InvalidPart", f"Part {number[:20]!r} has no number or no ETag of one that was uploaded."
            )
        named.append(_Named(int(number), etag.lower()))
    if root.tag != "CompleteMultipartUpload" or not 1 <= len(named) <= MOST_PARTS:
        raise S3Error("MalformedXML", f"A CompleteMultipartUpload document has 1 to {MOST_PARTS} parts.")
    if any(one.number >= other.number for one, other in itertools.pairwise(named)):
        raise S3Error("InvalidPartOrder", "The parts must be in the order of their numbers.")
    return named


def _etag(named: list[_Named]) -> str:
    try:
        joined = b"".join(bytes.fromhex(one.etag) for one in named)
    except ValueError:
        raise S3Error("InvalidPart", "An ETag is not one of a part that was uploaded.") from None
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(named)}"


async def _is_there(call: Call, etag: str) -> bool:
    with contextlib.suppress(NotFound):
        return (await call.run(call.embedded.info, call.bucket, call.key, call.project)).etag == etag
    return False


def _join(call: Call, upload: Upload, named: list[_Named], etag: str, expect: Expect) -> None:
    chosen = _chosen(upload, named)
    about = upload.about
    writer = call.embedded.writer(
        call.bucket, call.key, call.project, about.content_type, about.metadata, expect=expect
    )
    try:
        for part in chosen:
            file = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                writer.take(file, part.size, part.crc32c)
            finally:
                os.close(file)
        writer.commit(etag)
    except FileNotFoundError:
        raise parts.no_upload() from None
    finally:
        writer.abort()
    upload.remove()


def _chosen(upload: Upload, named: list[_Named]) -> list[Part]:
    there = {(part.number, part.md5): part for part in upload.parts()}
    missing = [one for one in named if one not in there]
    if missing:
        raise S3Error("InvalidPart", f"Part {missing[0].number} was not uploaded, or has another ETag.")
    chosen = [there[one] for one in named]
    if any(part.size < _SMALLEST for part in chosen[:-1]):
        raise S3Error("EntityTooSmall", f"All parts but the last must have at least {_SMALLEST} bytes.")
    return chosen


def _completed(call: Call, etag: str) -> str:
    path = f"/{call.bucket}/{quote(call.key)}"
    return (
        f"<CompleteMultipartUploadResult {xml.NAMESPACE}><Location>{xml.spell(path)}</Location>"
        f"<Bucket>{call.bucket}</Bucket><Key>{xml.spell(call.key)}</Key><ETag>&quot;{etag}&quot;</ETag>"
        "</CompleteMultipartUploadResult>"
    )


def _result(name: str, upload: Upload, rest: str) -> str:
    about = upload.about
    return (
        f"<{name} {xml.NAMESPACE}><Bucket>{about.bucket}</Bucket><Key>{xml.spell(about.key)}</Key>"
        f"<UploadId>{upload.id}</UploadId>{rest}</{name}>"
    )
