"""Uploads by a form. A signed policy lets people without a key upload what the signer allows."""

from contextlib import aclosing
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from turnout.access import FindsKeys, Key, sigv2, sigv4
from turnout.access.sigv4 import ALGORITHM, LONGEST_LIFE, SKEW, UNSIGNED, HttpRequest, Problem, SignatureError
from turnout.gateways.s3 import form, policy, xml
from turnout.gateways.s3.body import MAX_BODY
from turnout.gateways.s3.call import S3Call
from turnout.gateways.s3.errors import S3Error
from turnout.gateways.s3.objects import custom_metadata
from turnout.gateways.s3.policy import SizeRange
from turnout.gateways.s3.sign import problems_as_codes
from turnout.storage.clients import ObjectWriter
from turnout.storage.embedded.objects import Info

_FIELDS_SECONDS = 60


def is_form(request: HttpRequest) -> bool:
    kind = request.header("content-type").lower()
    return request.method == "POST" and not request.query and kind.startswith("multipart/form-data")


async def post(call: S3Call, keys: FindsKeys | None, now: float) -> None:
    """`keys`: None if policies and signatures are not checked."""
    limit = form.boundary(call.request.header("content-type"))
    fields = await _fields(call, limit)
    values = fields.values
    key = values.get("key", "")
    if not key:
        raise S3Error("UserKeyMustBeSpecified", "The form must have a field key before its file.")
    values["key"] = call.key = key.replace(
        "${filename}", fields.filename.replace("\\", "/").rpartition("/")[2]
    )
    if keys is not None:
        signer = _signer(keys, values, now)
        call.signed_by(signer.project, UNSIGNED, None)
        if not signer.root:
            call.end_when_revoked(keys, signer.id)
    sizes = policy.check(values["policy"], values, call.bucket, now) if "policy" in values or keys else None
    metadata = custom_metadata(values.items())
    kind = values.get("content-type", fields.file_type)
    writer = await call.run(call.store.writer, call.bucket, call.key, call.project, kind, metadata)
    try:
        file = _File(writer, form.FileBytes(limit), sizes)
        await call.write_pieces(file.feed, fields.rest)
        info = await call.run(file.finish)
    finally:
        await call.run(writer.abort)
    await _reply(call, values, info)


async def _fields(call: S3Call, limit: bytes) -> form.Fields:
    try:
        with call.unauthenticated_body() as reservation:
            await reservation.reserve(form.MAX_FIELDS)
            async with reservation.receiving(_FIELDS_SECONDS), aclosing(call.pieces(gather=1)) as pieces:
                return await form.read_fields(pieces, limit)
    except TimeoutError:
        raise S3Error("RequestTimeout", "The fields of the form took too long to arrive.") from None


def _signer(keys: FindsKeys, values: dict[str, str], now: float) -> Key:
    """Raises S3Error."""
    text = values.get("policy", "")
    with problems_as_codes():
        if "x-amz-signature" in values and text:
            return _signer_by_version_4(keys, values, text, now)
        if "signature" in values and text:
            key_id = values.get(sigv2.KEY_ID.lower(), "")
            key = keys.find(key_id)
            return sigv4.check_signature(key, key_id, sigv2.sign(key, text), values["signature"])
        raise SignatureError(Problem.NOT_SIGNED, "Access denied: the form has no policy and signature.")


def _signer_by_version_4(keys: FindsKeys, values: dict[str, str], text: str, now: float) -> Key:
    names = ("x-amz-algorithm", "x-amz-credential", "x-amz-date")
    algorithm, credential, timestamp = (values.get(name, "") for name in names)
    if algorithm != ALGORITHM:
        raise SignatureError(Problem.BAD_HEADER, f"x-amz-algorithm must be {ALGORITHM}.")
    made = sigv4.parse_timestamp(timestamp)
    if made - SKEW > now:
        raise SignatureError(Problem.SKEWED, "The form is not valid yet.")
    if now > made + LONGEST_LIFE + SKEW:
        raise SignatureError(Problem.EXPIRED, "Request has expired.")
    key_id, _, scope = credential.partition("/")
    key = keys.find(key_id)
    signing_key = sigv4.signing_key_of(key, scope, timestamp, "s3")
    return sigv4.check_signature(key, key_id, sigv4.sign(signing_key, text), values["x-amz-signature"])


class _File:
    """Writes the file of a form, in threads."""

    def __init__(self, writer: ObjectWriter, cut: form.FileBytes, sizes: SizeRange | None) -> None:
        self._writer = writer
        self._cut = cut
        self._sizes = sizes or SizeRange(0, MAX_BODY)
        self._size = 0

    def feed(self, data: bytes) -> None:
        piece = self._cut.feed(data)
        self._size += len(piece)
        if self._size > min(self._sizes.most, MAX_BODY):
            raise S3Error("EntityTooLarge", "Your proposed upload exceeds the maximum allowed size.")
        self._writer.write(piece)

    def finish(self) -> Info:
        self._cut.finish()
        if self._size < self._sizes.least:
            raise S3Error("EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size.")
        return self._writer.commit()


async def _reply(call: S3Call, values: dict[str, str], info: Info) -> None:
    address = f"/{call.bucket}/{quote(call.key)}"
    headers = {"etag": f'"{info.etag}"', "location": address}
    redirect = values.get("success_action_redirect") or values.get("redirect") or ""
    if redirect.isascii() and redirect.isprintable() and redirect.startswith(("http://", "https://")):
        await call.reply(303, headers | {"location": _with_outcome(redirect, call, info)})
        return
    status = values.get("success_action_status", "")
    if status != "201":
        await call.reply(200 if status == "200" else 204, headers)
        return
    text = (
        f"<PostResponse><Location>{xml.escape_text(address)}</Location><Bucket>{call.bucket}</Bucket>"
        f"<Key>{xml.escape_text(call.key)}</Key><ETag>&quot;{info.etag}&quot;</ETag></PostResponse>"
    )
    await call.reply(201, headers | {"content-type": "application/xml"}, (xml.HEAD + text).encode())


def _with_outcome(redirect: str, call: S3Call, info: Info) -> str:
    try:
        address = urlsplit(redirect)
    except ValueError:
        return redirect
    outcome = [("bucket", call.bucket), ("key", call.key), ("etag", f'"{info.etag}"')]
    return address._replace(query=urlencode([*parse_qsl(address.query), *outcome])).geturl()
