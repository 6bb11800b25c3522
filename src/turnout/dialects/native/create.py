"""POST `/turnout/v1/jobs` creates a job from a document of any API, POST `…/jobs/{job}/clone` from another job."""

import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.bodies import known, read_body
from turnout.dialects import Context
from turnout.dialects.native import documents, reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.lookup import find_job
from turnout.dialects.native.wire import ApiDocument, created_document, job_document
from turnout.errors import AlreadyExists, Invalid
from turnout.job import Job
from turnout.job.portable import Converted
from turnout.service import Caller, JobView, calls

DEFAULT_LOCATION = "us-central1"
_LARGEST_DOCUMENT = 10 << 20
_MOST_COPIES = 100


_Body = TypeVar("_Body", bound=msgspec.Struct)


class Clone(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    """Of the new job; without it, the old name with a number."""
    changes: dict[str, Any] = {}
    """New values by path in the document, such as `jobSpec.workerPoolSpecs.0.replicaCount`. null removes a field."""
    api: str = ""
    """The API of the new job: tia, modelarts or vertex; without it, that of the old one."""


class Priority(msgspec.Struct, forbid_unknown_fields=True):
    priority: int


PRIORITIES = range(1, 4)


async def document_of(context: Context, view: JobView, api: str) -> Converted:
    """The request that created the job, or one of another API that creates the same. Raises Invalid."""
    if api == view.job.dialect:
        return Converted(documents.decode(view.document), ())
    if api not in context.conversions or view.job.dialect not in context.conversions:
        raise Invalid(
            f"api: must be one of {', '.join(sorted(context.conversions))}, not {api!r}", field="api"
        )
    spec = await context.jobs.spec(view)
    return context.conversions[api].convert(view.job, context.conversions[view.job.dialect].portable(spec))


def create_routes(context: Context, guarded: Guard) -> list[Route]:
    calls = _CreateHandlers(context)
    return [
        Route("/turnout/v1/jobs", guarded(calls.create), methods=["POST"]),
        Route("/turnout/v1/jobs/{job:path}/documents", guarded(calls.of_each_api)),
        Route("/turnout/v1/jobs/{job:path}/clone", guarded(calls.clone), methods=["POST"]),
        Route("/turnout/v1/jobs/{job:path}/priority", guarded(calls.priority), methods=["POST"]),
    ]


class _CreateHandlers:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def create(self, request: Request, caller: Caller) -> Response:
        """Vertex' addresses have a location: the parameter `location`. `name` replaces the one in the document."""
        query = request.query_params
        api, document = documents.recognize(documents.decode(await self._body(request, caller)))
        if name := query.get("name"):
            document = documents.renamed(api, document, name)
        location = query.get("location") or DEFAULT_LOCATION
        return _created(await self._submit(caller, api, document, location))

    async def clone(self, request: Request, caller: Caller) -> Response:
        clone = _decode(await self._body(request, caller), Clone)
        caller, view, _ = await find_job(self._context.jobs, request, caller)
        api = clone.api or view.job.dialect
        location = _location(view.job) or DEFAULT_LOCATION
        original = await document_of(self._context, view, api)
        document = documents.changed(original.document, clone.changes)
        if clone.name:
            document = documents.renamed(api, document, clone.name)
            return _created(await self._submit(caller, api, document, location))
        name = view.job.name if api == view.job.dialect else documents.name_of(api, original.document)
        base, number = _numbered(name)
        for copy in range(number + 1, number + _MOST_COPIES):
            try:
                named = documents.renamed(api, document, f"{base}-{copy}")
                return _created(await self._submit(caller, api, named, location))
            except AlreadyExists:
                continue
        raise AlreadyExists(f"name: {base} has {_MOST_COPIES} copies already; choose a name")

    async def of_each_api(self, request: Request, caller: Caller) -> Response:
        """The job as a request of each API."""
        _, view, _ = await find_job(self._context.jobs, request, caller)
        found = {api: await document_of(self._context, view, api) for api in self._context.conversions}
        return reply.json(
            {"documents": {api: ApiDocument(one.document, one.notes) for api, one in found.items()}}
        )

    async def priority(self, request: Request, caller: Caller) -> Response:
        """Takes effect at once for a waiting job. Raises WrongState if it has ended."""
        wanted = _decode(await self._body(request, caller), Priority).priority
        if wanted not in PRIORITIES:
            raise Invalid(f"priority: must be 1, 2 or 3, not {wanted}", field="priority")
        caller, view, _ = await find_job(self._context.jobs, request, caller)
        await self._context.jobs.amend(caller, view.job.id, priority=wanted)
        view = await self._context.jobs.by_id(caller, view.job.id)
        return reply.json(job_document(view.job, view.replicas))

    async def _submit(self, caller: Caller, api: str, document: documents.Document, location: str) -> JobView:
        job = await self._context.submit[api](caller, msgspec.json.encode(document), location)
        return await self._context.jobs.by_id(caller, job.id)

    async def _body(self, request: Request, caller: Caller) -> bytes:
        with self._context.bodies.open(known(caller.project)) as reservation:
            headers = dict(request.scope["headers"])
            body = await read_body(reservation, headers, request.receive, _LARGEST_DOCUMENT)
        if body is None:
            raise ClientDisconnect
        return body


def _decode(body: bytes, kind: type[_Body]) -> _Body:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the body is not valid: {error}") from None


def _created(view: JobView) -> Response:
    call = calls.current()
    return reply.json(created_document(view.job, view.replicas, call.notes if call else ()), 201)


def _location(job: Job) -> str:
    return job.scope.rpartition(":")[2] if job.dialect == "vertex" else ""


def _numbered(name: str) -> tuple[str, int]:
    """`train` is the first, `train-2` the second."""
    match = re.fullmatch(r"(.+)-([0-9]{1,6})", name, re.DOTALL)
    return (match[1], int(match[2])) if match else (name, 1)
