"""Tasks, stages, events and metrics of a job, and what a program reports about itself."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import fields, reply
from turnout.dialects.modelarts.context import Context, Routes
from turnout.dialects.modelarts.errors import INVALID
from turnout.dialects.modelarts.jobs import lookup
from turnout.dialects.modelarts.observe import events, metrics, stages, tasks
from turnout.dialects.modelarts.observe.history import History
from turnout.dialects.modelarts.observe.messages import language
from turnout.errors import Invalid
from turnout.job import Replica
from turnout.service import Caller, JobView

REPORT_TYPES = ("training-event",)


class _Report(msgspec.Struct):
    type: str


async def list_tasks(context: Context, request: Request, caller: Caller) -> Response:
    """The tasks of one attempt, or of all. The answer is an array."""
    view = await lookup.job(context, request, caller)
    attempt = fields.number(request.query_params, "schedule_count", 0, 0, 1 << 30)
    attempts = await _replicas_by_attempt(context, view)
    chosen = [replicas for replicas in attempts if replicas and attempt in (0, replicas[0].attempt)]
    return reply.json(tasks.render(chosen))


async def list_stages(context: Context, request: Request, caller: Caller) -> Response:
    view = await lookup.job(context, request, caller)
    return reply.json(stages.render(await _history(context, view)))


async def list_events(context: Context, request: Request, caller: Caller) -> Response:
    query = events.parse_query(request.query_params)
    view = await lookup.job(context, request, caller)
    language_code = language(request.headers.get("x-language", ""))
    return reply.json(events.render(await _history(context, view), query, language_code, context.clock()))


async def list_event_categories(context: Context, request: Request, caller: Caller) -> Response:
    fields.choice(request.query_params, "flavor_type", "", ("", "CPU", "GPU", "Ascend"))
    return reply.json(events.categories(language(request.headers.get("x-language", ""))))


async def show_metrics(context: Context, request: Request, caller: Caller) -> Response:
    view, name = await lookup.task(context, request, caller)
    if view.job.started is None:
        return reply.no_content()
    replica = next((candidate for candidate in view.replicas if candidate.name == name), None)
    until = (replica.ended if replica else None) or view.job.ended or context.clock()
    samples = await context.jobs.samples(view, name)
    return reply.json(metrics.render(samples, view.job.started, until))


async def report(context: Context, request: Request, caller: Caller) -> Response:
    """Records a program's report as an event of its job. It has no other effect."""
    body = await fields.read(request, _Report)
    kind = request.path_params["report_type"]
    if kind not in REPORT_TYPES:
        raise Invalid(
            f"report_type must be {' or '.join(REPORT_TYPES)}, not {kind!r}.",
            field="report_type",
            code=INVALID,
        )
    reported = fields.text("type", body.type, 256)
    view = await lookup.job(context, request, caller)
    task = tasks.replica_name(await context.jobs.spec(view), request.path_params["task_id"])
    await context.jobs.note(caller, view.job.id, f"{task} reports {reported}")
    return reply.json(None)


_JOB = "/training-jobs/{training_job_id}"
ROUTES: Routes = [
    ("GET", "/training-event-categories", list_event_categories),
    ("GET", f"{_JOB}/tasks", list_tasks),
    ("GET", f"{_JOB}/stages", list_stages),
    ("GET", f"{_JOB}/events", list_events),
    ("GET", f"{_JOB}/metrics/{{task_id}}", show_metrics),
    ("POST", f"{_JOB}/tasks/{{task_id}}/reports/{{report_type}}", report),
]


async def _history(context: Context, view: JobView) -> History:
    return History(
        view,
        await context.jobs.events(view),
        await lookup.past(context, view),
        await _replicas_by_attempt(context, view),
    )


async def _replicas_by_attempt(context: Context, view: JobView) -> list[tuple[Replica, ...]]:
    earlier = [await context.jobs.replicas(view, attempt) for attempt in range(1, view.job.attempt)]
    return [*earlier, view.replicas] if view.job.attempt else []
