"""Signed URLs of objects (`?X-Goog-Signature=…`, for V2 `?Signature=…`), as the XML API has them, with its errors."""

import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from html import escape
from urllib.parse import unquote_to_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnout import errors
from turnout.access import FindsKeys, Key, goog2, goog4
from turnout.access.revoked import unless_revoked
from turnout.access.sigv4 import UNSIGNED, Problem, SignatureError, http_request
from turnout.gateways.gcs import errors as error_responses
from turnout.gateways.gcs import unsupported
from turnout.gateways.gcs.calls import Calls
from turnout.gateways.gcs.sessions import ObjectRef
from turnout.gateways.gcs.upload import Uploads
from turnout.service import calls
from turnout.service.download import Download
from turnout.storage.source import check_bucket

_QUERY_NAMES = (b"X-Goog-Signature=", b"X-Goog-Algorithm=", b"GoogleAccessId=")
_PRINTABLE = re.compile(r"[\x20-\x7e\xa0-\xff]*")
_OVERRIDES = {
    "response-content-type": "content-type",
    "response-content-disposition": "content-disposition",
}
_PROBLEMS: dict[Problem, tuple[int, str]] = {
    Problem.EXPIRED: (400, "ExpiredToken"),
    Problem.MISMATCH: (403, "SignatureDoesNotMatch"),
    Problem.UNKNOWN_KEY: (403, "InvalidSecurity"),
    Problem.UNSIGNED_HEADERS: (400, "MalformedSecurityHeader"),
    Problem.SKEWED: (403, "RequestTimeTooSkewed"),
}
_CODES = {
    400: "InvalidArgument",
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "OperationAborted",
    410: "NoSuchUpload",
    412: "PreconditionFailed",
    413: "EntityTooLarge",
    416: "InvalidRange",
    429: "SlowDown",
    503: "ServiceUnavailable",
    507: "InsufficientStorage",
}


class SignedUrls:
    """The ASGI application for signed URLs."""

    name = "gcs"

    def __init__(self, keys: FindsKeys, calls: Calls, uploads: Uploads, no_auth: bool) -> None:
        self._keys = keys
        self._calls = calls
        self._uploads = uploads
        self._no_auth = no_auth

    def owns(self, scope: Scope) -> bool:
        """Whether a request is for a signed URL. The query decides, because an object can have any path."""
        query = scope["query_string"]
        return b"Goog" in query and any(name in query for name in _QUERY_NAMES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await _in_xml(request, self._answer)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        key, payload = self._check(request)
        calls.identify(key.id, key.project, changes=request.method == "DELETE")
        unsupported.check(request)
        ref = _object(request, key.project)
        response = await unless_revoked(self._keys, key.id, self._carry_out(request, ref, key, payload))
        if isinstance(response, Download):
            response.guard = partial(unless_revoked, self._keys, key.id)
        return response

    def _check(self, request: Request) -> tuple[Key, str]:
        """The key that signed the request, and the hash that the body must have. Raises SignatureError."""
        signed = http_request(request.scope)
        if self._no_auth:
            return self._keys.root, UNSIGNED
        version = goog4 if signed.param(goog2.ACCOUNT) is None else goog2
        return version.verify(self._keys.find, signed, time.time())

    async def _carry_out(self, request: Request, ref: ObjectRef, key: Key, payload: str) -> Response:
        match request.method:
            case "GET" | "HEAD":
                return _overridden(request, await self._calls.download(request, ref))
            case "DELETE":
                return await self._calls.delete(request, ref)
            case "PUT":
                return await self._uploads.put(request, ref, payload)
            case "POST" if request.headers.get("x-goog-resumable", "").lower() == "start":
                return await self._uploads.start(request, ref, key.id)
        raise errors.Unsupported(f"{request.method} is not supported for signed URLs")


def _object(request: Request, project: str) -> ObjectRef:
    path = request.scope["raw_path"].partition(b"?")[0]
    try:
        bucket, _, key = unquote_to_bytes(path).decode().removeprefix("/").partition("/")
    except UnicodeDecodeError:
        raise errors.Invalid("the address is not in UTF-8") from None
    check_bucket(bucket, bucket)
    if not key:
        raise errors.Unsupported("signed URLs are supported for objects, not for buckets")
    return ObjectRef(bucket, key, project)


def _overridden(request: Request, response: Response) -> Response:
    """The response with the headers that the signer chose. Its Content-Security-Policy stays."""
    for parameter, header in _OVERRIDES.items():
        value = request.query_params.get(parameter)
        if value is not None:
            if not _PRINTABLE.fullmatch(value):
                raise errors.Invalid(f"{parameter} has a character that a header cannot have")
            response.headers[header] = value
    return response


async def _in_xml(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    try:
        return await answer(request)
    except SignatureError as error:
        return _error(*_PROBLEMS.get(error.problem, (400, "InvalidQueryParameterValue")), error.message)
    except errors.NotFound as error:
        return _error(404, "NoSuchBucket" if error.field == "bucket" else "NoSuchKey", error.message)
    except errors.TurnoutError as error:
        status = error_responses.response(error).status_code
        return _error(status, _CODES.get(status, "InternalError"), error.message)
    except ClientDisconnect:
        return Response(status_code=400)
    except Exception as error:  # noqa: BLE001 (no traceback may reach a user)
        status = error_responses.unexpected(request, error).status_code
        return _error(
            status,
            _CODES.get(status, "InternalError"),
            "the service had an internal error; its log has the details",
        )


def _error(status: int, code: str, message: str) -> Response:
    text = escape(re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "\ufffd", message), quote=False)
    body = (
        f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{text}</Message></Error>"
    )
    return Response(body, status, media_type="application/xml")
