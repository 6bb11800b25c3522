"""The door itself: who asks, what for, and S3's own words when it goes wrong."""

import logging
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.access import Keys
from turnout.doors.s3 import buckets, multipart, objects, xml
from turnout.doors.s3.call import Call, Gone
from turnout.doors.s3.errors import S3Error, translate
from turnout.doors.s3.sign import UNSIGNED, Asked, parse_query, verify
from turnout.errors import Invalid, TurnoutError
from turnout.storage.objects import Embedded
from turnout.storage.source import check_bucket

Handler = Callable[[Call], Awaitable[None]]

_log = logging.getLogger("turnout.s3")
_THREADS = 8

# Method, whether a key is named, and the parameter that makes it another operation.
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

# Parameters that make it another operation. One that we do not have must not be taken for a plain put or get.
_TURNS = {
    *(turn for _, _, turn in _OPERATIONS if turn),
    "accelerate", "acl", "analytics", "attributes", "cors", "encryption", "intelligent-tiering", "inventory",
    "legal-hold", "lifecycle", "logging", "metadataTable", "metrics", "notification", "object-lock",
    "ownershipControls", "partNumber", "policy", "policyStatus", "publicAccessBlock", "renameObject", "replication",
    "requestPayment", "restore", "retention", "select", "session", "tagging", "torrent", "versionId", "versions",
    "website",
}  # fmt: skip


def app(embedded: Embedded, keys: Keys, now: Callable[[], float], no_auth: bool = False) -> ASGIApp:
    """`now`: seconds since 1970. `no_auth`: every caller is the root key, signed or not."""
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="s3")

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        asked = _asked(scope)
        call = Call(asked, embedded, (receive, send), threads, secrets.token_hex(8))
        try:
            await _answer(call, None if no_auth else keys, keys.root.project, now())
        except Gone:
            return
        except S3Error as error:
            await _refuse(call, error)
        except TurnoutError as error:
            await _refuse(call, translate(error))
        except Exception:  # noqa: BLE001  whatever it is, the client hears of it in S3's words
            _log.exception("%s %r", asked.method, asked.path)
            await _refuse(call, S3Error("InternalError", "Something went wrong here; try again."))

    return serve


async def _answer(call: Call, keys: Keys | None, project: str, now: float) -> None:
    asked = call.asked
    if keys is None:
        payload = asked.header("x-amz-content-sha256") or UNSIGNED
        call.signed_by(project, payload, None)
    else:
        key, payload, chain = verify(keys, asked, now)
        call.signed_by(key.project, payload, chain)
    call.bucket, call.key = _place(asked.path)
    if not call.bucket:
        if asked.method != "GET":
            raise S3Error("MethodNotAllowed", "Only GET, for the list of buckets.")
        await buckets.list_buckets(call)
        return
    try:
        check_bucket(call.bucket, call.bucket)
    except Invalid as error:
        raise S3Error("InvalidBucketName", error.message) from None
    await _operation(asked, bool(call.key))(call)


def _operation(asked: Asked, key: bool) -> Handler:
    turns = {name for name, value in asked.query if name in _TURNS and (name, value) != ("versionId", "null")}
    if "uploadId" in turns:
        turns.discard("partNumber")
    if "list-type" in turns and asked.param("list-type") != "2":
        raise S3Error("InvalidArgument", "list-type must be 2.")
    turn = min(turns, default="")
    handler = _OPERATIONS.get((asked.method, key, turn))
    if handler is None or len(turns) > 1:
        if not turns and asked.method not in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            raise S3Error("MethodNotAllowed", f"{asked.method} is not allowed here.")
        raise S3Error(
            "NotImplemented", f"{asked.method} with {', '.join(sorted(turns))} is not supported here."
        )
    if asked.header("x-amz-copy-source") and handler in _COPIES:
        return _COPIES[handler]
    return handler


def _asked(scope: Scope) -> Asked:
    headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
    path = scope.get("raw_path") or scope["path"].encode()
    return Asked(scope["method"], path.partition(b"?")[0], parse_query(scope["query_string"]), headers)


def _place(path: bytes) -> tuple[str, str]:
    try:
        text = unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise S3Error("InvalidArgument", "The key must be UTF-8.") from None
    bucket, _, key = text.removeprefix("/").partition("/")
    return bucket, key


async def _refuse(call: Call, error: S3Error) -> None:
    if call.started:
        return  # the connection ends short of what was promised, which the client notices
    asked = call.asked
    if error.status == 304:
        await call.reply(304)
        return
    text = xml.failure(error, unquote_to_bytes(asked.path).decode("utf-8", "replace"), call.request_id)
    body = b"" if asked.method == "HEAD" else (xml.HEAD + text).encode()
    await call.reply(error.status, {"content-type": "application/xml"}, body)
