"""Uploads in parts: create, part, copy a part, list, complete, abort."""

import contextlib
import hashlib
import itertools
import os
import time
from typing import NamedTuple
from urllib.parse import quote

from turnout.errors import NotFound
from turnout.gateways.s3 import conditions, parts, times, xml
from turnout.gateways.s3.call import Headers, S3Call
from turnout.gateways.s3.errors import S3Error
from turnout.gateways.s3.objects import copied, copy_source, late_error, written_headers
from turnout.gateways.s3.parts import MAX_PARTS, NewPart, Part, Upload, UploadInfo
from turnout.storage.clients import copy_bytes
from turnout.storage.embedded.objects import Expect


class _PartRef(NamedTuple):
    number: int
    etag: str


async def create(call: S3Call) -> None:
    await call.document()
    kind, metadata = written_headers(call)

    def begin() -> Upload:
        # A trial writer reports errors before the client sends gigabytes.
        call.store.writer(call.bucket, call.key, call.project, kind, metadata).abort()
        info = UploadInfo(call.bucket, call.key, call.project, kind, metadata, time.time_ns())
        return parts.begin(call.store.uploads(), info)

    upload = await call.run(begin)
    await call.reply_xml(_result("InitiateMultipartUploadResult", upload, ""))


async def put_part(call: S3Call) -> None:
    number = _number(call)
    part = NewPart(await _find(call), number)
    try:
        body = await call.receive_body(part)

        def finish() -> Headers:
            checksums = body.finish()
            part.commit()
            return checksums

        checksums = await call.run(finish)
    finally:
        await call.run(part.abort)
    await call.reply(200, {"etag": f'"{part.md5}"'} | checksums)


async def copy_part(call: S3Call) -> None:
    number, source = _number(call), copy_source(call)
    upload = await _find(call)
    call.source_bucket = source[0]
    info = await call.run(call.store.info, *source, call.project)
    conditions.check(call.request, info, "x-amz-copy-source-")

    def work() -> str:
        text = call.request.header("x-amz-copy-source-range")
        opened = call.store.read(*source, call.project, part=text)
        part = NewPart(upload, number)
        try:
            size = opened.info.size
            copy_bytes(opened, part.write, *(conditions.span(text, size) or (0, size)))
            part.commit()
        finally:
            part.abort()
            opened.close()
        return copied("CopyPartResult", part.md5, time.time_ns())

    await call.reply_late(work, lambda error: late_error(call, error))


async def list_parts(call: S3Call) -> None:
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


async def list_uploads(call: S3Call) -> None:
    await call.check_bucket()
    prefix = call.request.param("prefix") or ""

    def find() -> list[Upload]:
        return list(parts.unfinished(call.store.uploads(), call.bucket, call.project))

    found = [upload for upload in await call.run(find) if upload.info.key.startswith(prefix)]
    rows = "".join(
        f"<Upload><Key>{xml.escape_text(upload.info.key)}</Key><UploadId>{upload.id}</UploadId>"
        f"<Initiated>{times.iso(upload.info.made)}</Initiated></Upload>"
        for upload in found
    )
    await call.reply_xml(
        f"<ListMultipartUploadsResult {xml.NAMESPACE}><Bucket>{call.bucket}</Bucket><IsTruncated>false</IsTruncated>"
        f"{rows}</ListMultipartUploadsResult>"
    )


async def complete(call: S3Call) -> None:
    listed = await call.run(_listed_parts, await call.document())
    expect = conditions.expected(call.request)
    etag = _etag(listed)
    try:
        upload = await _find(call)
    except S3Error:
        if not await _has_object(call, etag):
            raise
        await call.reply_xml(_completed(call, etag))  # a retry: the first response was lost
        return

    def work() -> str:
        return _completed(call, _join_parts(call, upload, listed, etag, expect))

    await call.reply_late(work, lambda error: late_error(call, error))


async def abort(call: S3Call) -> None:
    upload = await _find(call)
    await call.run(upload.remove)
    await call.reply(204)


async def _find(call: S3Call) -> Upload:
    upload_id = call.request.param("uploadId") or ""
    return await call.run(
        lambda: parts.find(call.store.uploads(), upload_id, call.bucket, call.key, call.project)
    )


def _number(call: S3Call) -> int:
    number = _count(call, "partNumber", 0)
    if not 1 <= number <= MAX_PARTS:
        raise S3Error("InvalidArgument", f"partNumber must be from 1 to {MAX_PARTS}.")
    return number


def _count(call: S3Call, name: str, default: int) -> int:
    text = call.request.param(name) or str(default)
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise S3Error("InvalidArgument", f"{name} must be a number.")
    return int(text)


def _listed_parts(text: bytes) -> list[_PartRef]:
    root = xml.parse(text)
    listed: list[_PartRef] = []
    for element in root.findall("Part"):
        number, etag = xml.value(element, "PartNumber").strip(), xml.value(element, "ETag").strip().strip('"')
        if not number.isascii() or not number.isdecimal() or len(number) > 5 or len(etag) != 32:
            raise S3Error(
                "InvalidPart", f"Part {number[:20]!r} needs a number and the ETag of an uploaded part."
            )
        listed.append(_PartRef(int(number), etag.lower()))
    if root.tag != "CompleteMultipartUpload" or not 1 <= len(listed) <= MAX_PARTS:
        raise S3Error("MalformedXML", f"A CompleteMultipartUpload document has 1 to {MAX_PARTS} parts.")
    if any(before.number >= after.number for before, after in itertools.pairwise(listed)):
        raise S3Error("InvalidPartOrder", "The parts must be in the order of their numbers.")
    return listed


def _etag(listed: list[_PartRef]) -> str:
    try:
        digests = b"".join(bytes.fromhex(part.etag) for part in listed)
    except ValueError:
        raise S3Error("InvalidPart", "An ETag does not belong to an uploaded part.") from None
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(listed)}"


async def _has_object(call: S3Call, etag: str) -> bool:
    with contextlib.suppress(NotFound):
        return (await call.run(call.store.info, call.bucket, call.key, call.project)).etag == etag
    return False


def _join_parts(call: S3Call, upload: Upload, listed: list[_PartRef], etag: str, expect: Expect) -> str:
    """Returns the ETag of the object: a remote store makes its own."""
    chosen = _find_parts(upload, listed, call.api.min_part)
    info = upload.info
    writer = call.store.writer(
        call.bucket, call.key, call.project, info.content_type, info.metadata, expect=expect
    )
    try:
        for part in chosen:
            file = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                writer.take(file, part.size, part.crc32c)
            finally:
                os.close(file)
        joined = writer.commit(etag)
    except FileNotFoundError:
        raise parts.no_upload() from None
    finally:
        writer.abort()
    upload.remove()
    return joined.etag


def _find_parts(upload: Upload, listed: list[_PartRef], min_part: int) -> list[Part]:
    uploaded = {(part.number, part.md5): part for part in upload.parts()}
    missing = [part for part in listed if part not in uploaded]
    if missing:
        raise S3Error("InvalidPart", f"Part {missing[0].number} was not uploaded, or has another ETag.")
    chosen = [uploaded[part] for part in listed]
    if any(part.size < min_part for part in chosen[:-1]):
        raise S3Error("EntityTooSmall", f"All parts but the last must have at least {min_part} bytes.")
    return chosen


def _completed(call: S3Call, etag: str) -> str:
    path = f"/{call.bucket}/{quote(call.key)}"
    return (
        f"<CompleteMultipartUploadResult {xml.NAMESPACE}><Location>{xml.escape_text(path)}</Location>"
        f"<Bucket>{call.bucket}</Bucket><Key>{xml.escape_text(call.key)}</Key><ETag>&quot;{etag}&quot;</ETag>"
        "</CompleteMultipartUploadResult>"
    )


def _result(name: str, upload: Upload, rest: str) -> str:
    info = upload.info
    return (
        f"<{name} {xml.NAMESPACE}><Bucket>{info.bucket}</Bucket><Key>{xml.escape_text(info.key)}</Key>"
        f"<UploadId>{upload.id}</UploadId>{rest}</{name}>"
    )
