"""The S3 application: authenticates a request, finds its operation, and answers errors in S3's format."""

import logging
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.access import Keys
from turnout.access.sigv4 import UNSIGNED, HttpRequest, http_request
from turnout.bodies import Bodies
from turnout.errors import Invalid, TurnoutError
from turnout.gateways.s3 import buckets, multipart, objects, post, xml
from turnout.gateways.s3.call import ClientDisconnected, S3Call
from turnout.gateways.s3.errors import S3Error, translate
from turnout.gateways.s3.sign import verify
from turnout.storage.embedded.objects import EmbeddedStore
from turnout.storage.source import check_bucket

Handler = Callable[[S3Call], Awaitable[None]]

_log = logging.getLogger("turnout.s3")

# Method, whether the URL has a key, and the subresource in its query.
_OPERATIONS: dict[tuple[str, bool, str], Handler] = {
    ("DELETE", False, ""): buckets.remove,
    ("GET", False, ""): buckets.list_v1,
    ("GET", False, "list-type"): buckets.list_v2,
    ("GET", False, "location"): buckets.location,
    ("GET", False, "uploads"): multipart.list_uploads,
    ("GET", False, "versioning"): buckets.versioning,
    ("HEAD", False, ""): buckets.head,
    ("POST", False, "delete"): buckets.delete_many,
    ("PUT", False, ""): buckets.create,
    ("DELETE", True, ""): objects.delete,
    ("DELETE", True, "uploadId"): multipart.abort,
    ("GET", True, ""): objects.get,
    ("GET", True, "uploadId"): multipart.list_parts,
    ("HEAD", True, ""): objects.head,
    ("POST", True, "uploadId"): multipart.complete,
    ("POST", True, "uploads"): multipart.create,
    ("PUT", True, ""): objects.put,
    ("PUT", True, "uploadId"): multipart.put_part,
}
_COPIES: dict[Handler, Handler] = {objects.put: objects.copy, multipart.put_part: multipart.copy_part}

# Query parameters that select another operation. An unsupported one must not be taken for a plain put or get.
_SUBRESOURCES = {
    *(subresource for _, _, subresource in _OPERATIONS if subresource),
    "accelerate", "acl", "analytics", "attributes", "cors", "encryption", "intelligent-tiering", "inventory",
    "legal-hold", "lifecycle", "logging", "metadataTable", "metrics", "notification", "object-lock",
    "ownershipControls", "partNumber", "policy", "policyStatus", "publicAccessBlock", "renameObject", "replication",
    "requestPayment", "restore", "retention", "select", "session", "tagging", "torrent", "versionId", "versions",
    "website",
}  # fmt: skip


def app(
    embedded: EmbeddedStore, keys: Keys, now: Callable[[], float], bodies: Bodies, no_auth: bool = False
) -> ASGIApp:
    """`now`: seconds since 1970. `no_auth`: every caller is the root key, signed or not."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = http_request(scope)
        call = S3Call(request, embedded, (receive, send), bodies, secrets.token_hex(8))
        try:
            await _answer(call, None if no_auth else keys, keys.root.project, now())
        except ClientDisconnected:
            return
        except S3Error as error:
            await _refuse(call, error)
        except TurnoutError as error:
            await _refuse(call, translate(error))
        except Exception:  # noqa: BLE001 (the client gets any error in S3's format)
            _log.exception("%s %r", request.method, request.path)
            await _refuse(call, S3Error("InternalError", "Internal error; try again."))

    return serve


async def _answer(call: S3Call, keys: Keys | None, project: str, now: float) -> None:
    """`keys`: None if signatures are not checked."""
    if keys is None:
        payload = call.request.header("x-amz-content-sha256") or UNSIGNED
        call.signed_by(project, payload, None)
    elif not post.is_form(call.request):
        call.request, key, payload, chain = verify(keys, call.request, now)
        call.signed_by(key.project, payload, chain)
        if not key.root:
            call.end_when_revoked(keys, key.id)
    request = call.request
    call.bucket, call.key = _bucket_and_key(request.path)
    if not call.bucket:
        if request.method != "GET":
            raise S3Error("MethodNotAllowed", "Only GET is allowed here, for the list of buckets.")
        await buckets.list_buckets(call)
        return
    try:
        check_bucket(call.bucket, call.bucket)
    except Invalid as error:
        raise S3Error("InvalidBucketName", error.message) from None
    if post.is_form(request):
        if call.key:
            raise S3Error("MethodNotAllowed", "Post a form to the bucket; its field key names the object.")
        await post.post(call, keys, now)
        return
    _refuse_promises(request)
    await _operation(request, bool(call.key))(call)


def _refuse_promises(request: HttpRequest) -> None:
    """Raises NotImplemented for features that the gateway does not have and that the client would rely on."""
    for name, value in request.headers:
        if name.startswith("x-amz-object-lock-"):
            raise S3Error("NotImplemented", "Objects cannot be locked here.")
        if name == "x-amz-bucket-object-lock-enabled" and value.lower() == "true":
            raise S3Error("NotImplemented", "Buckets with locked objects are not supported.")
        if "server-side-encryption-customer-" in name:
            raise S3Error("NotImplemented", "Encryption with customer keys is not supported.")


def _operation(request: HttpRequest, key: bool) -> Handler:
    subresources = {
        name
        for name, value in request.query
        if name in _SUBRESOURCES and (name, value) != ("versionId", "null")
    }
    if "uploadId" in subresources:
        subresources.discard("partNumber")
    if "list-type" in subresources and request.param("list-type") != "2":
        raise S3Error("InvalidArgument", "list-type must be 2.")
    subresource = min(subresources, default="")
    handler = _OPERATIONS.get((request.method, key, subresource))
    if handler is None or len(subresources) > 1:
        if not subresources and request.method not in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            raise S3Error("MethodNotAllowed", f"{request.method} is not allowed here.")
        raise S3Error(
            "NotImplemented",
            f"{request.method} with {', '.join(sorted(subresources))} is not supported here.",
        )
    if request.header("x-amz-copy-source") and handler in _COPIES:
        return _COPIES[handler]
    return handler


def _bucket_and_key(path: bytes) -> tuple[str, str]:
    try:
        text = unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise S3Error("InvalidArgument", "The key must be UTF-8.") from None
    bucket, _, key = text.removeprefix("/").partition("/")
    return bucket, key


async def _refuse(call: S3Call, error: S3Error) -> None:
    if call.started:
        return  # the body is shorter than Content-Length, which the client notices
    request = call.request
    if error.status == 304:
        await call.reply(304)
        return
    text = xml.failure(error, unquote_to_bytes(request.path).decode("utf-8", "replace"), call.request_id)
    body = b"" if request.method == "HEAD" else (xml.HEAD + text).encode()
    await call.reply(error.status, {"content-type": "application/xml"}, body)
