"""Routes of the JSON API.

An object's name is one part of the path with its slashes encoded, so the raw path is split before it is decoded.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from turnout import errors
from turnout.access import FindsKeys, JobKeys
from turnout.access.revoked import unless_revoked
from turnout.bodies import Bodies
from turnout.config import Settings
from turnout.gateways.gcs import batch, unsupported
from turnout.gateways.gcs import errors as error_responses
from turnout.gateways.gcs.callers import GcsCallers, WhyNotOwner
from turnout.gateways.gcs.calls import Calls
from turnout.gateways.gcs.sessions import ObjectRef
from turnout.gateways.gcs.signed import SignedUrls
from turnout.gateways.gcs.upload import Uploads
from turnout.service import calls
from turnout.service.download import Download
from turnout.storage.clients import ClientBuckets

Endpoint = Callable[[Request], Awaitable[Response]]

PREFIXES = (
    "/storage/v1/",
    "/batch/storage/",
    "/download/storage/",
    "/upload/storage/",
    "/resumable/upload/storage/",
)
_BUCKETS = "/storage/v1/b"
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def routes(
    store: ClientBuckets, keys: JobKeys, settings: Settings, why_not_owner: WhyNotOwner, bodies: Bodies
) -> tuple[list[Route], SignedUrls]:
    """The routes, and the application for signed URLs. `why_not_owner`: see `callers.WhyNotOwner`."""
    callers = GcsCallers(keys, settings, why_not_owner)
    calls, uploads = Calls(store, bodies), Uploads(store, bodies, keys)
    gateway = _Gateway(keys, calls, uploads, callers, bodies)
    table: dict[str, Endpoint] = {
        "/batch/storage/v1": gateway.batch,
        _BUCKETS: gateway.manage,
        _BUCKETS + "/{rest:path}": gateway.manage,
        "/download" + _BUCKETS + "/{rest:path}": gateway.download,
        "/upload" + _BUCKETS + "/{rest:path}": gateway.upload,
        "/resumable/upload" + _BUCKETS + "/{rest:path}": gateway.upload,  # where gcloud begins its sessions
    }
    found = [Route(path, _guarded(endpoint), methods=_METHODS) for path, endpoint in table.items()]
    return found, SignedUrls(keys, calls, uploads, settings.no_auth)


class _Gateway:
    def __init__(
        self, keys: FindsKeys, calls: Calls, uploads: Uploads, callers: GcsCallers, bodies: Bodies
    ) -> None:
        self._keys = keys
        self._calls = calls
        self._uploads = uploads
        self._callers = callers
        self._bodies = bodies

    async def manage(self, request: Request) -> Response:
        project, key = self._callers.identify(request)
        # Uploads and copies are data, and objects show them; the audit trail has what is gone.
        calls.identify(key, project, changes=request.method == "DELETE")
        return self._until_revoked(await self._manage(request, project), key)

    async def _manage(self, request: Request, project: str) -> Response:
        unsupported.check(request)
        parts = _parts(request, _BUCKETS)
        method = "GET" if request.method == "HEAD" else request.method
        calls = self._calls
        match method, parts:
            case "GET", []:
                return await calls.list_buckets(request, project)
            case "POST", []:
                return await calls.make_bucket(request, project)
            case "GET", [bucket]:
                return await calls.bucket(request, ObjectRef(bucket, "", project))
            case "PATCH", [bucket]:
                return await calls.change_bucket(request, ObjectRef(bucket, "", project))
            case "DELETE", [bucket]:
                return await calls.remove_bucket(request, ObjectRef(bucket, "", project))
            case "GET", [bucket, "storageLayout"]:
                return await calls.storage_layout(request, ObjectRef(bucket, "", project))
            case "GET", [bucket, "managedFolders"]:
                return await calls.managed_folders(request, ObjectRef(bucket, "", project))
            case "GET", [bucket, "o"]:
                return await calls.objects(request, ObjectRef(bucket, "", project))
            case "POST", [bucket, "o", key, "rewriteTo" | "copyTo" as verb, "b", to_bucket, "o", to_key]:
                source, target = ObjectRef(bucket, key, project), ObjectRef(to_bucket, to_key, project)
                return await calls.copy(request, source, target, rewrite=verb == "rewriteTo")
            case "POST", [bucket, "o", key, "compose"]:
                return await calls.compose(request, ObjectRef(bucket, key, project))
            case _, [_, "o", _, "acl", *_]:
                raise _unknown(request)
            case "GET" | "DELETE" | "PATCH" | "PUT", [bucket, "o", *key] if key:
                changes = {"DELETE": calls.delete, "PATCH": calls.patch, "PUT": calls.patch}
                return await changes.get(method, calls.get)(
                    request, ObjectRef(bucket, "/".join(key), project)
                )
        raise _unknown(request)

    async def download(self, request: Request) -> Response:
        project, key = self._callers.identify(request)
        return self._until_revoked(await self._download(request, project), key)

    async def _download(self, request: Request, project: str) -> Response:
        unsupported.check(request)
        match request.method, _parts(request, "/download" + _BUCKETS):
            case "GET" | "HEAD", [bucket, "o", *key] if key:
                return await self._calls.download(request, ObjectRef(bucket, "/".join(key), project))
        raise _unknown(request)

    async def batch(self, request: Request) -> Response:
        if request.method != "POST":
            raise _unknown(request)
        project, key = self._callers.identify(request)
        calls.identify(key, project)
        work = batch.answer(self._bodies, request, project, self._in_batch)
        return await unless_revoked(self._keys, key, work)

    async def _in_batch(self, request: Request) -> Response:
        project, _ = self._callers.identify(request)
        inside = request.url.path.startswith(_BUCKETS + "/")
        if not inside or request.query_params.get("alt") == "media" or request.method not in _METHODS:
            raise errors.Invalid(f"{request.method} {request.url.path} cannot be part of a batch")
        return await self._manage(request, project)

    def _until_revoked(self, response: Response, key: str) -> Response:
        if isinstance(response, Download):
            response.guard = partial(unless_revoked, self._keys, key)
        return response

    async def upload(self, request: Request) -> Response:
        unsupported.check(request)
        base = "/resumable" if request.url.path.startswith("/resumable/") else ""
        match request.method, _parts(request, base + "/upload" + _BUCKETS):
            case "POST", [_, "o"] if "upload_id" in request.query_params:  # as gcsfs sends its chunks
                return await self._uploads.resume(request)
            case "POST", [bucket, "o"]:
                return await self._uploads.begin(request, bucket, *self._callers.identify(request))
            case "PUT", [_, "o"]:
                return await self._uploads.resume(request)
            case "DELETE", [_, "o"]:
                return await self._uploads.cancel(request)
        raise _unknown(request)


def _guarded(endpoint: Endpoint) -> Endpoint:
    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except errors.TurnoutError as error:
            return error_responses.response(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001 (no traceback may reach a user)
            return error_responses.unexpected(request, error)

    return guarded


def _parts(request: Request, base: str) -> list[str]:
    sent = request.scope["raw_path"].decode("latin-1").partition("?")[0]
    rest = sent[len(base) :].lstrip("/")
    try:
        return [unquote(part, errors="strict") for part in rest.split("/")] if rest else []
    except UnicodeDecodeError:
        raise errors.Invalid("the address is not in UTF-8") from None


def _unknown(request: Request) -> errors.TurnoutError:
    return errors.Unsupported(f"{request.method} {request.url.path} is not supported")
