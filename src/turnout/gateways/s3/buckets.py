"""Buckets, what is in them, and deleting many at a time."""

import base64
import binascii
from collections.abc import Callable
from urllib.parse import quote

from turnout.doors.s3 import times, xml
from turnout.doors.s3.call import Call
from turnout.doors.s3.errors import S3Error, translate
from turnout.errors import Denied, NotFound, TurnoutError
from turnout.storage.objects import Page

_MOST_KEYS = 1000


async def list_buckets(call: Call) -> None:
    found = await call.run(call.embedded.buckets, call.project)
    rows = "".join(
        f"<Bucket><Name>{name}</Name><CreationDate>{times.iso(made)}</CreationDate></Bucket>"
        for name, made in found
    )
    await call.reply_xml(
        f"<ListAllMyBucketsResult {xml.NAMESPACE}>{_owner(call, 'Owner')}<Buckets>{rows}</Buckets>"
        "</ListAllMyBucketsResult>"
    )


async def create(call: Call) -> None:
    await call.document()
    try:
        await call.run(call.embedded.make_bucket, call.bucket, call.project)
    except Denied as error:
        raise S3Error("BucketAlreadyExists", error.message) from None
    await call.reply(200, {"location": f"/{call.bucket}"})


async def head(call: Call) -> None:
    await _check(call)
    await call.reply(200, {"x-amz-bucket-region": "us-east-1"})


async def remove(call: Call) -> None:
    await call.run(call.embedded.remove_bucket, call.bucket, call.project)
    await call.reply(204)


async def location(call: Call) -> None:
    await _check(call)
    await call.reply_xml(f"<LocationConstraint {xml.NAMESPACE}/>")


async def versioning(call: Call) -> None:
    await _check(call)
    await call.reply_xml(f"<VersioningConfiguration {xml.NAMESPACE}/>")


async def list_v1(call: Call) -> None:
    marker = call.asked.param("marker") or ""
    page = await _page(call, marker)
    spell = _speller(call)
    following = f"<NextMarker>{spell(page.next)}</NextMarker>" if page.next else ""
    await call.reply_xml(_listing(call, page, f"<Marker>{spell(marker)}</Marker>{following}", owner=True))


async def list_v2(call: Call) -> None:
    token = call.asked.param("continuation-token") or ""
    start = call.asked.param("start-after") or ""
    page = await _page(call, _unspell_token(token) if token else start)
    spell = _speller(call)
    more = f"<KeyCount>{len(page.objects) + len(page.prefixes)}</KeyCount>"
    if token:
        more += f"<ContinuationToken>{xml.spell(token)}</ContinuationToken>"
    if start:
        more += f"<StartAfter>{spell(start)}</StartAfter>"
    if page.next:
        more += f"<NextContinuationToken>{_spell_token(page.next)}</NextContinuationToken>"
    await call.reply_xml(_listing(call, page, more, owner=call.asked.param("fetch-owner") == "true"))


async def delete_many(call: Call) -> None:
    root = xml.parse(await call.document())
    keys = [xml.value(one, "Key") for one in root.findall("Object")]
    if root.tag != "Delete" or not 1 <= len(keys) <= _MOST_KEYS or not all(keys):
        raise S3Error("MalformedXML", f"A Delete document has 1 to {_MOST_KEYS} objects with their keys.")
    await _check(call)
    rows = await call.run(_delete_each, call, keys, xml.value(root, "Quiet") == "true")
    await call.reply_xml(f"<DeleteResult {xml.NAMESPACE}>{rows}</DeleteResult>")


def _delete_each(call: Call, keys: list[str], quiet: bool) -> str:
    rows: list[str] = []
    for key in keys:
        try:
            call.embedded.delete(call.bucket, key, call.project)
        except NotFound:
            pass
        except TurnoutError as error:
            known = translate(error)
            rows.append(
                f"<Error><Key>{xml.spell(key)}</Key><Code>{known.code}</Code>"
                f"<Message>{xml.spell(known.message)}</Message></Error>"
            )
            continue
        if not quiet:
            rows.append(f"<Deleted><Key>{xml.spell(key)}</Key></Deleted>")
    return "".join(rows)


async def _check(call: Call) -> None:
    if not await call.run(call.embedded.has_bucket, call.bucket, call.project):
        raise S3Error("NoSuchBucket", f"there is no bucket {call.bucket!r}")


async def _page(call: Call, after: str) -> Page:
    prefix, delimiter = call.asked.param("prefix") or "", call.asked.param("delimiter") or ""
    return await call.run(
        call.embedded.list, call.bucket, call.project, prefix, delimiter, after, _limit(call)
    )


def _limit(call: Call) -> int:
    text = call.asked.param("max-keys") or str(_MOST_KEYS)
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise S3Error("InvalidArgument", "max-keys must be a number.")
    return min(int(text), _MOST_KEYS)


def _listing(call: Call, page: Page, more: str, owner: bool) -> str:
    spell = _speller(call)
    who = _owner(call, "Owner") if owner else ""
    rows = [
        f"<Contents><Key>{spell(one.key)}</Key><LastModified>{times.iso(one.modified)}</LastModified>"
        f"<ETag>&quot;{one.etag}&quot;</ETag><Size>{one.size}</Size><StorageClass>STANDARD</StorageClass>"
        f"{who}</Contents>"
        for one in page.objects
    ]
    rows += [f"<CommonPrefixes><Prefix>{spell(one)}</Prefix></CommonPrefixes>" for one in page.prefixes]
    delimiter = call.asked.param("delimiter")
    head = (
        f"<Name>{call.bucket}</Name><Prefix>{spell(call.asked.param('prefix') or '')}</Prefix>"
        f"<MaxKeys>{_limit(call)}</MaxKeys><IsTruncated>{'true' if page.next else 'false'}</IsTruncated>"
    )
    if delimiter:
        head += f"<Delimiter>{spell(delimiter)}</Delimiter>"
    if call.asked.param("encoding-type") == "url":
        head += "<EncodingType>url</EncodingType>"
    return f"<ListBucketResult {xml.NAMESPACE}>{head}{more}{''.join(rows)}</ListBucketResult>"


def _speller(call: Call) -> Callable[[str], str]:
    """How keys are written: escaped, or as the client asked, in the form of URLs."""
    if call.asked.param("encoding-type") == "url":
        return lambda text: quote(text.encode("utf-8", "surrogateescape"), safe="/-_.~")
    return xml.spell


def _owner(call: Call, name: str) -> str:
    who = xml.spell(call.project)
    return f"<{name}><ID>{who}</ID><DisplayName>{who}</DisplayName></{name}>"


def _spell_token(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _unspell_token(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise S3Error("InvalidArgument", "The continuation token is not one of this service's.") from None
