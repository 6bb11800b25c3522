"""The application of the S3 port: authenticates requests of S3, OBS and COS, finds their operations, answers errors."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.access import FindsKeys
from turnout.access.sigv4 import UNSIGNED, HttpRequest, http_request
from turnout.bodies import Bodies
from turnout.errors import Invalid, TurnoutError
from turnout.gateways.s3 import apis, buckets, multipart, objects, post, xml
from turnout.gateways.s3.call import ClientDisconnected, S3Call
from turnout.gateways.s3.errors import S3Error, translate
from turnout.gateways.s3.sign import verify
from turnout.service import calls
from turnout.service.download import sends_files
from turnout.storage.clients import ClientBucketsOf
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
    "accelerate", "acl", "analytics", "append", "attributes", "cors", "encryption", "fileinterface",
    "intelligent-tiering", "inventory", "legal-hold", "lifecycle", "logging", "metadata", "metadataTable", "metrics",
    "modify", "notification", "object-lock", "ownershipControls", "partNumber", "policy", "policyStatus",
    "publicAccessBlock", "quota", "rename", "renameObject", "replication", "requestPayment", "restore", "retention",
    "select", "session", "storageClass", "storageinfo", "storagePolicy", "tagging", "torrent", "truncate", "versionId",
    "versions", "website",
}  # fmt: skip


def app(
    stores: ClientBucketsOf,
    keys: FindsKeys,
    now: Callable[[], float],
    bodies: Bodies,
    no_auth: bool = False,
    domains: Sequence[str] = (),
) -> ASGIApp:
    """`now`: seconds since 1970. `no_auth`: every caller is the root key, signed or not.

    `domains`: names of this port. The part of a host before one of them is a bucket.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = http_request(scope)
        api, bucket = apis.addressed(request, domains)
        call = S3Call(request, api, stores(api.scheme), (receive, send), bodies, secrets.token_hex(8))
        call.sends_files = sends_files(scope)
        try:
            await _answer(call, bucket, None if no_auth else keys, keys.root.project, now())
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


async def _answer(call: S3Call, bucket: str, keys: FindsKeys | None, project: str, now: float) -> None:
    """`bucket`: the one in the host. `keys`: None if signatures are not checked."""
    if call.request.method == "HEAD" and call.request.param("apiversion") is not None:
        await buckets.api_version(call)  # not signed, and says nothing of the bucket
        return
    if keys is None:
        payload = call.request.header("x-amz-content-sha256") or UNSIGNED
        call.signed_by(project, payload, None)
        calls.identify("root", project, changes=_removes(call.request))
    elif not post.is_form(call.request):
        call.request, key, payload, chain = verify(keys, call.request, now, call.api, bucket)
        call.signed_by(key.project, payload, chain)
        calls.identify(key.id, key.project, changes=_removes(call.request))
        if not key.root:
            call.end_when_revoked(keys, key.id)
    request = call.request = apis.inward(call.api, call.request)
    call.bucket, call.key = _bucket_and_key(request.path, bucket)
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


def _removes(request: HttpRequest) -> bool:
    """The audit trail has what is gone. Uploads and copies are data, and objects show them."""
    deletes_many = request.method == "POST" and request.param("delete") is not None
    return deletes_many or (request.method == "DELETE" and request.param("uploadId") is None)


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


def _bucket_and_key(path: bytes, bucket: str) -> tuple[str, str]:
    try:
        text = unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise S3Error("InvalidArgument", "The key must be UTF-8.") from None
    if bucket:
        return bucket, text.removeprefix("/")
    bucket, _, key = text.removeprefix("/").partition("/")
    return bucket, key


async def _refuse(call: S3Call, error: S3Error) -> None:
    if call.started:
        return  # the body is shorter than Content-Length, which the client notices
    request = call.request
    calls.refused(error.code, internal=error.status >= 500)
    if error.status == 304:
        await call.reply(304)
        return
    error = S3Error(error.code, error.message.replace(apis.S3_PREFIX, call.api.prefix))
    text = xml.failure(error, unquote_to_bytes(request.path).decode("utf-8", "replace"), call.request_id)
    body = b"" if request.method == "HEAD" else call.document_bytes(text)
    await call.reply(error.status, {"content-type": "application/xml"}, body)
