"""Which call it is, who asks, and what goes wrong.

An object's name is one part of the address with its slashes encoded, so addresses are taken apart as they were sent.
"""

from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnout import errors
from turnout.access import Keys
from turnout.config import Settings
from turnout.doors.gcs import errors as answers
from turnout.doors.gcs.callers import Callers, Stranger
from turnout.doors.gcs.calls import Calls, Place
from turnout.doors.gcs.upload import Uploads
from turnout.storage.objects import Embedded

Endpoint = Callable[[Request], Awaitable[Response]]

_BUCKETS = "/storage/v1/b"
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def routes(embedded: Embedded, keys: Keys, settings: Settings, stranger: Stranger) -> list[BaseRoute]:
    """`stranger`: why a request without credentials is not surely from the user who runs the service, or nothing."""
    door = _Door(Calls(embedded), Uploads(embedded), Callers(keys, settings, stranger))
    table: dict[str, Endpoint] = {
        _BUCKETS: door.manage,
        _BUCKETS + "/{rest:path}": door.manage,
        "/download" + _BUCKETS + "/{rest:path}": door.download,
        "/upload" + _BUCKETS + "/{rest:path}": door.upload,
    }
    return [Route(path, _guarded(endpoint), methods=_METHODS) for path, endpoint in table.items()]


class _Door:
    def __init__(self, calls: Calls, uploads: Uploads, callers: Callers) -> None:
        self._calls = calls
        self._uploads = uploads
        self._callers = callers

    async def manage(self, request: Request) -> Response:
        project = self._callers.project(request)
        parts = _parts(request, _BUCKETS)
        method = "GET" if request.method == "HEAD" else request.method
        calls = self._calls
        match method, parts:
            case "GET", []:
                return await calls.list_buckets(request, project)
            case "POST", []:
                return await calls.make_bucket(request, project)
            case "GET" | "PATCH", [bucket]:
                return await calls.bucket(request, Place(bucket, "", project))
            case "DELETE", [bucket]:
                return await calls.remove_bucket(request, Place(bucket, "", project))
            case "GET", [bucket, "o"]:
                return await calls.objects(request, Place(bucket, "", project))
            case "POST", [bucket, "o", key, "rewriteTo" | "copyTo" as verb, "b", to_bucket, "o", to_key]:
                source, target = Place(bucket, key, project), Place(to_bucket, to_key, project)
                return await calls.copy(request, source, target, rewrite=verb == "rewriteTo")
            case "POST", [bucket, "o", key, "compose"]:
                return await calls.compose(request, Place(bucket, key, project))
            case "GET" | "DELETE" | "PATCH" | "PUT", [bucket, "o", *key] if key:
                changes = {"DELETE": calls.delete, "PATCH": calls.patch, "PUT": calls.patch}
                return await changes.get(method, calls.get)(request, Place(bucket, "/".join(key), project))
        raise _unknown(request)

    async def download(self, request: Request) -> Response:
        project = self._callers.project(request)
        match request.method, _parts(request, "/download" + _BUCKETS):
            case "GET" | "HEAD", [bucket, "o", *key] if key:
                return await self._calls.download(request, Place(bucket, "/".join(key), project))
        raise _unknown(request)

    async def upload(self, request: Request) -> Response:
        match request.method, _parts(request, "/upload" + _BUCKETS):
            case "POST", [bucket, "o"]:
                return await self._uploads.begin(request, bucket, self._callers.project(request))
            case "PUT", [_, "o"]:
                return await self._uploads.proceed(request)
            case "DELETE", [_, "o"]:
                return await self._uploads.give_up(request)
        raise _unknown(request)


def _guarded(endpoint: Endpoint) -> Endpoint:
    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except errors.TurnoutError as error:
            return answers.answer(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001 (no traceback may reach a user)
            return answers.unexpected(request, error)

    return guarded


def _parts(request: Request, base: str) -> list[str]:
    sent = request.scope["raw_path"].decode("latin-1").partition("?")[0]
    rest = sent[len(base) :].lstrip("/")
    try:
        return [unquote(part, errors="strict") for part in rest.split("/")] if rest else []
    except UnicodeDecodeError:
        raise errors.Invalid("the address is not in UTF-8") from None


def _unknown(request: Request) -> errors.TurnoutError:
    return errors.Unsupported(f"{request.method} {request.url.path} is not a call that this service knows")
