"""GET `/turnout/v1/jobs`: the jobs of all APIs. Filter, order and cursor are in the query of the URL."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects import Context
from turnout.dialects.native import job_filter, reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.cursor import make_cursor, read_cursor
from turnout.dialects.native.wire import JobRow, JobsDocument, job_row
from turnout.job import All, Job, Query
from turnout.service import Caller

_ALL = All()


def job_list_routes(context: Context, guarded: Guard) -> list[Route]:
    async def list_jobs(request: Request, caller: Caller) -> Response:
        jobs, following = await page(context, request, caller)
        return reply.json(JobsDocument(await job_rows(context, jobs), following))

    return [Route("/turnout/v1/jobs", guarded(list_jobs), methods=["GET"])]


async def page(
    context: Context, request: Request, caller: Caller, among: Query = _ALL, most: int = job_filter.MAX_LIMIT
) -> tuple[list[Job], str]:
    """The jobs of a page, and the cursor of the next one, which is empty on the last.

    Root sees the jobs of all projects unless it names one; other keys those of their own. `among`: only these jobs.
    """
    query = request.query_params
    listing = job_filter.parse(query, context.clock(), context.keys.name_of(caller.key))
    listing = listing._replace(limit=min(listing.limit, most))
    project = None if caller.root and not query.get("project") else caller.project
    secret, signed = context.keys.root.secret, (project or "", *listing.canonical)
    found, cursor = All(among, listing.query), query.get("cursor")
    if cursor:
        found = All(found, listing.after(read_cursor(secret, signed, cursor)))
    jobs = await context.jobs.list_jobs(project, found, listing.page())
    more, jobs = jobs[listing.limit :], jobs[: listing.limit]
    return jobs, make_cursor(secret, signed, listing.position(jobs[-1])) if more else ""


async def job_rows(context: Context, jobs: list[Job]) -> list[JobRow]:
    labels = await context.jobs.labels([job.id for job in jobs])
    return [
        msgspec.structs.replace(
            job_row(job, job_filter.user_labels(labels[job.id])), waits_for=context.jobs.waits_for(job.id)
        )
        for job in jobs
    ]
