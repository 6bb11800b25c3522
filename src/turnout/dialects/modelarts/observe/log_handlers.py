"""The log of a task: its end, a link to the whole log, or lines by their numbers."""

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from turnout import pools
from turnout.access.links import check_link, make_link
from turnout.access.revoked import until_revoked
from turnout.dialects.modelarts import errors, reply
from turnout.dialects.modelarts.context import Context, Routes
from turnout.dialects.modelarts.jobs import lookup
from turnout.dialects.modelarts.observe import logs
from turnout.errors import Denied, TurnoutError
from turnout.job import ReplicaName, to_uuid
from turnout.service import Caller, JobView, while_connected


async def preview(context: Context, request: Request, caller: Caller) -> Response:
    view, replica = await lookup.task(context, request, caller)
    if not _is_ready(context, view, replica):
        return reply.no_content()
    reading = _read_preview(context, view, replica)
    return Response(await while_connected(request.receive, reading), media_type="application/json")


async def make_url(context: Context, request: Request, caller: Caller) -> Response:
    kind = logs.link_kind(request.query_params, request.headers)
    view, replica = await lookup.task(context, request, caller)
    if not _is_ready(context, view, replica):
        return reply.no_content()
    # Without authentication there is no key that could be revoked.
    key = caller.key if context.keys.find(caller.key) else ""
    subject = logs.link_subject(view.job.project, to_uuid(view.job.id), str(replica), kind, key)
    link = make_link(context.keys.root, subject, context.clock() / 1e9)
    return reply.json({"obs_url": logs.url(str(request.base_url), view.job, replica, kind, key, link)})


async def read_lines(context: Context, request: Request, caller: Caller) -> Response:
    lines = logs.parse_line_range(request.query_params)
    view, replica = await lookup.task(context, request, caller)
    if not _is_ready(context, view, replica):
        return reply.no_content()
    reading = context.logs.numbered(view, replica, lines.first, lines.count, lines.descending)
    found = await while_connected(request.receive, reading)
    return reply.json(logs.render_lines(found, lines.descending))


async def download(context: Context, request: Request) -> Response:
    """Sends the whole log. The signature of the link authenticates the request."""
    project, job_id, task_id = (
        request.path_params[name] for name in ("project_id", "training_job_id", "task_id")
    )
    query = request.query_params
    kind = "download" if query.get("type") == "download" else "view"
    key = query.get("key", "")
    subject = logs.link_subject(project, job_id, task_id, kind, key)
    expires, signature = query.get("expires", ""), query.get("signature", "")
    check_link(context.keys.root, subject, expires, signature, context.clock() / 1e9)
    if key and context.keys.find(key) is None:
        raise Denied("the key that requested this link was revoked")
    caller = Caller("link", project, root=True)
    view = await lookup.by_uuid(context, caller, job_id)
    view, replica = await lookup.task_of(context, caller, view, task_id)
    return StreamingResponse(
        until_revoked(context.keys, key, context.logs.whole(view, replica)),
        headers=logs.headers(job_id, task_id, kind),
        media_type=logs.MEDIA_TYPES[kind],
    )


_JOB = "/training-jobs/{training_job_id}"
ROUTES: Routes = [
    ("GET", f"{_JOB}/tasks/{{task_id}}/logs/preview", preview),
    ("GET", f"{_JOB}/tasks/{{task_id}}/logs/url", make_url),
    ("GET", f"{_JOB}/logs/{{task_id}}", read_lines),
]


def link_route(context: Context) -> Route:
    """The route of log links. It is outside of the API: only the link's signature authenticates the request."""

    async def endpoint(request: Request) -> Response:
        try:
            return await download(context, request)
        except TurnoutError as error:
            return errors.response(error)

    path = logs.LINK_PATH + "/{project_id}/{training_job_id}/{task_id}"
    return Route(path, endpoint, methods=["GET"])


async def _read_preview(context: Context, view: JobView, replica: ReplicaName) -> bytes:
    tail, size = await context.logs.tail(view, replica, logs.MAX_PREVIEW)
    return await pools.logs.run(view.job.project, logs.preview, tail, size)


def _is_ready(context: Context, view: JobView, replica: ReplicaName) -> bool:
    return logs.is_ready(view, replica, context.clock(), context.settings.limits.log_days)
