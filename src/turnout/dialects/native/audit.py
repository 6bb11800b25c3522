"""GET `/turnout/v1/audit`: who changed what, the newest first. A project's key sees the lines of its project."""

import re

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects import Context
from turnout.dialects.native import job_filter, reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.wire import AuditPage, audit_document
from turnout.errors import Invalid
from turnout.service import AuditFilter, Caller

_PARAMETERS = ("project", "key", "job", "since", "limit", "cursor")


def audit_routes(context: Context, guarded: Guard) -> list[Route]:
    async def audit(request: Request, caller: Caller) -> Response:
        query = request.query_params
        unknown = sorted(set(query) - set(_PARAMETERS))
        if unknown:
            known = ", ".join(_PARAMETERS)
            raise Invalid(f"{unknown[0][:100]}: unknown parameter; use one of {known}", field=unknown[0])
        limit = job_filter.read_limit(query)
        wanted = AuditFilter(
            project=None if caller.root and not query.get("project") else caller.project,
            who=context.keys.name_of(caller.key) if query.get("key") == "me" else query.get("key", ""),
            job=await _job(context, caller, query.get("job", "")),
            since=job_filter.read_time("since", query["since"], context.clock()) if query.get("since") else 0,
            before=_before(query),
        )
        found = await context.audit.find(wanted, limit + 1)
        more = str(found[limit - 1].number) if len(found) > limit else ""
        return reply.json(AuditPage([audit_document(line) for line in found[:limit]], more))

    return [Route("/turnout/v1/audit", guarded(audit))]


async def _job(context: Context, caller: Caller, reference: str) -> int:
    """The id, also of a job that is deleted: its lines stay."""
    if not reference:
        return 0
    if re.fullmatch(r"[0-9]{19}", reference):
        return int(reference)
    view, *_ = await context.jobs.by_reference(caller, reference, everywhere=caller.root)
    return view.job.id


def _before(query: QueryParams) -> int:
    text = query.get("cursor") or "0"
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Invalid("cursor: must be the `next` of the previous page", field="cursor")
    return int(text)
