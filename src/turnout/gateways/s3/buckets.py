"""Buckets: list, create, remove; list their objects, and delete many objects."""

from collections.abc import Callable
from urllib.parse import quote
from xml.etree.ElementTree import Element

from turnout.errors import Denied
from turnout.gateways import page_token
from turnout.gateways.s3 import apis, times, xml
from turnout.gateways.s3.call import S3Call
from turnout.gateways.s3.errors import S3Error, translate
from turnout.storage.embedded.objects import ObjectPage

_MAX_KEYS = 1000


async def list_buckets(call: S3Call) -> None:
    found = await call.run(call.store.buckets, call.project)
    rows = "".join(
        f"<Bucket><Name>{apis.bucket_name(call.api, name, call.project)}</Name>"
        f"<CreationDate>{times.iso(made)}</CreationDate></Bucket>"
        for name, made in found
    )
    await call.reply_xml(
        f"<ListAllMyBucketsResult {xml.NAMESPACE}>{_owner(call, 'Owner')}<Buckets>{rows}</Buckets>"
        "</ListAllMyBucketsResult>"
    )


async def api_version(call: S3Call) -> None:
    """Huawei's SDK asks for it before its first request, and chooses the signature by the answer."""
    await call.reply(200, {"x-obs-api": "3.0"})


async def create(call: S3Call) -> None:
    await call.document()
    try:
        await call.run(call.store.make_bucket, call.bucket, call.project)
    except Denied as error:
        raise S3Error("BucketAlreadyExists", error.message) from None
    await call.reply(200, {"location": f"/{call.bucket}"})


async def head(call: S3Call) -> None:
    await call.check_bucket()
    await call.reply(200, {"x-amz-bucket-region": "us-east-1"})


async def remove(call: S3Call) -> None:
    await call.run(call.store.remove_bucket, call.bucket, call.project)
    await call.reply(204)


async def location(call: S3Call) -> None:
    await call.check_bucket()
    await call.reply_xml(f"<LocationConstraint {xml.NAMESPACE}/>")


async def versioning(call: S3Call) -> None:
    await call.check_bucket()
    await call.reply_xml(f"<VersioningConfiguration {xml.NAMESPACE}/>")


async def list_v1(call: S3Call) -> None:
    marker = call.request.param("marker") or ""
    page = await _page(call, marker)
    encode = _key_encoder(call)
    following = f"<NextMarker>{encode(page.next)}</NextMarker>" if page.next else ""
    await call.reply_xml(_listing(call, page, f"<Marker>{encode(marker)}</Marker>{following}", owner=True))


async def list_v2(call: S3Call) -> None:
    token = call.request.param("continuation-token") or ""
    start = call.request.param("start-after") or ""
    page = await _page(call, _decode_token(token) if token else start)
    encode = _key_encoder(call)
    more = f"<KeyCount>{len(page.objects) + len(page.prefixes)}</KeyCount>"
    if token:
        more += f"<ContinuationToken>{xml.escape_text(token)}</ContinuationToken>"
    if start:
        more += f"<StartAfter>{encode(start)}</StartAfter>"
    if page.next:
        more += f"<NextContinuationToken>{page_token.encode(page.next)}</NextContinuationToken>"
    await call.reply_xml(_listing(call, page, more, owner=call.request.param("fetch-owner") == "true"))


async def delete_many(call: S3Call) -> None:
    root = await call.run(xml.parse, await call.document())
    keys = [xml.value(element, "Key") for element in root.findall("Object")]
    if root.tag != "Delete" or not 1 <= len(keys) <= _MAX_KEYS or not all(keys):
        raise S3Error("MalformedXML", f"A Delete document has 1 to {_MAX_KEYS} objects with their keys.")
    for element in root.findall("Object"):
        _check_unconditional(element)
    await call.check_bucket()
    rows = await call.run(_delete_each, call, keys, xml.value(root, "Quiet") == "true")
    await call.reply_xml(f"<DeleteResult {xml.NAMESPACE}>{rows}</DeleteResult>")


def _check_unconditional(element: Element) -> None:
    for name in ("VersionId", "ETag", "LastModifiedTime", "Size"):
        if xml.value(element, name) not in ("", "null"):
            raise S3Error("NotImplemented", f"Objects cannot be deleted by {name} here.")


def _delete_each(call: S3Call, keys: list[str], quiet: bool) -> str:
    failed = call.store.delete_many(call.bucket, keys, call.project)
    rows: list[str] = []
    for key in keys:
        if error := failed.get(key):
            known = translate(error)
            rows.append(
                f"<Error><Key>{xml.escape_text(key)}</Key><Code>{known.code}</Code>"
                f"<Message>{xml.escape_text(known.message)}</Message></Error>"
            )
            continue
        if not quiet:
            rows.append(f"<Deleted><Key>{xml.escape_text(key)}</Key></Deleted>")
    return "".join(rows)


async def _page(call: S3Call, after: str) -> ObjectPage:
    prefix, delimiter = call.request.param("prefix") or "", call.request.param("delimiter") or ""
    return await call.run(call.store.list, call.bucket, call.project, prefix, delimiter, after, _limit(call))


def _limit(call: S3Call) -> int:
    text = call.request.param("max-keys") or str(_MAX_KEYS)
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise S3Error("InvalidArgument", "max-keys must be a number.")
    return min(int(text), _MAX_KEYS)


def _listing(call: S3Call, page: ObjectPage, more: str, owner: bool) -> str:
    encode = _key_encoder(call)
    owner_xml = _owner(call, "Owner") if owner else ""
    rows = [
        f"<Contents><Key>{encode(info.key)}</Key><LastModified>{times.iso(info.modified)}</LastModified>"
        f"<ETag>&quot;{info.etag}&quot;</ETag><Size>{info.size}</Size><StorageClass>STANDARD</StorageClass>"
        f"{owner_xml}</Contents>"
        for info in page.objects
    ]
    rows += [
        f"<CommonPrefixes><Prefix>{encode(prefix)}</Prefix></CommonPrefixes>" for prefix in page.prefixes
    ]
    delimiter = call.request.param("delimiter")
    head = (
        f"<Name>{call.bucket}</Name><Prefix>{encode(call.request.param('prefix') or '')}</Prefix>"
        f"<MaxKeys>{_limit(call)}</MaxKeys><IsTruncated>{'true' if page.next else 'false'}</IsTruncated>"
    )
    if delimiter:
        head += f"<Delimiter>{encode(delimiter)}</Delimiter>"
    if call.request.param("encoding-type") == "url":
        head += "<EncodingType>url</EncodingType>"
    return f"<ListBucketResult {xml.NAMESPACE}>{head}{more}{''.join(rows)}</ListBucketResult>"


def _key_encoder(call: S3Call) -> Callable[[str], str]:
    """Keys are escaped for XML, or URL-encoded if the client requests that."""
    if call.request.param("encoding-type") == "url":
        return lambda text: quote(text.encode("utf-8", "surrogateescape"), safe="/-_.~")
    return xml.escape_text


def _owner(call: S3Call, name: str) -> str:
    project = xml.escape_text(call.project)
    return f"<{name}><ID>{project}</ID><DisplayName>{project}</DisplayName></{name}>"


def _decode_token(token: str) -> str:
    key = page_token.decode(token)
    if not key:
        raise S3Error("InvalidArgument", "The continuation token was not issued by this service.")
    return key
