"""Hyperparameter tuning jobs: create, get, list, cancel, delete."""

from typing import Any

from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import job_filter, operations, paging, render, reply, translate
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.custom_jobs import handlers as custom_jobs
from turnout.dialects.vertex.installation import Installation
from turnout.dialects.vertex.protobuf import codec, enum_numbers, field_mask
from turnout.dialects.vertex.protobuf.field_mask import Mask
from turnout.dialects.vertex.tuning import trials
from turnout.dialects.vertex.tuning.wire import HyperparameterTuningJob, Trial
from turnout.errors import NotFound
from turnout.job import All, Compare, Page, TrialState
from turnout.service import JobView

KIND = "HyperparameterTuningJob"


async def create(context: Context, call: Call) -> Response:
    installation = Installation.of(context.settings, call.caller.project, call.location)
    decoded = codec.tuning_job(call.body)
    new = translate.new_tuning_job(decoded, installation)
    new = await custom_jobs.check_mounts(
        context, call, new, decoded.message.trial_job_spec, decoded.path / "trialJobSpec"
    )
    context.searches.check(new)
    job = await custom_jobs.create_job(context, call, new)
    return reply.json(_format(call, render.tuning_job(JobView(job, (), new.document))))


async def get(context: Context, call: Call) -> Response:
    view = await find(context, call)
    resource = render.tuning_job(view)
    trial_resources = await _trials(context, call, view)
    return reply.json(_format(call, resource | ({"trials": trial_resources} if trial_resources else {})))


async def list_jobs(context: Context, call: Call) -> Response:
    """Newest first, without their trials."""
    text = call.query.get("filter", "")
    listing = paging.Listing(call.caller.project, f"{KIND}/{call.location}", text)
    secret = context.keys.root.secret.encode()
    size = paging.page_size(call.query.get("pageSize", ""))
    before = paging.read_token(secret, listing, call.query.get("pageToken", ""))
    read_mask = field_mask.parse(call.query.get("readMask", ""), HyperparameterTuningJob)
    query = All(Compare("scope", "=", translate.tuning_scope(call.location)), job_filter.parse(text))
    views = await context.jobs.find(call.caller, query, Page(limit=size + 1, before_id=before))
    resources = [_format(call, _list_item(view), read_mask) for view in views[:size]]
    page: dict[str, Any] = {"hyperparameterTuningJobs": resources} if resources else {}
    if len(views) > size:
        page["nextPageToken"] = paging.make_token(secret, listing, views[size - 1].job.id)
    return reply.json(page)


async def cancel(context: Context, call: Call) -> Response:
    return await custom_jobs.cancel_job(context, call, await find(context, call))


async def delete(context: Context, call: Call) -> Response:
    view = await find(context, call)
    custom_jobs.check_ended(view, KIND, render.tuning_name(view.job))
    await context.jobs.delete(call.caller, view.job.id)
    return reply.json(operations.delete_operation(context, call))


async def list_optimal(context: Context, call: Call) -> Response:
    """The best trial, as Vizier returns it for a study: the job's id is also the id of its study."""
    view = await find(context, call)
    search = (await context.jobs.spec(view)).search
    found = [(trial.value, trial) for trial in await context.searches.trials(view) if trial.value is not None]
    if search is None or not found:
        return reply.json({})
    best = (max if search.metric.goal == "max" else min)(found, key=lambda pair: pair[0])[1]
    resource = trials.resource(view, best, await context.searches.measurements(view, best.number))
    return reply.json({"optimalTrials": [enum_numbers.apply(resource, Trial) if call.numbers else resource]})


async def find(context: Context, call: Call) -> JobView:
    """The job that the address names. Raises NotFound."""
    name = f"{call.parent}/hyperparameterTuningJobs/{call.resource[1][:100]}"
    view = await custom_jobs.find_by_id(context, call, KIND, name)
    if view.job.scope != translate.tuning_scope(call.location):
        raise NotFound(f"The {KIND} {name} does not exist.")
    return view


def _list_item(view: JobView) -> dict[str, Any]:
    return render.locked(view, render.tuning_name(view.job)) if view.locked else render.tuning_job(view)


async def _trials(context: Context, call: Call, view: JobView) -> list[dict[str, Any]]:
    resources: list[dict[str, Any]] = []
    tried = await context.searches.trials(view)
    measured = await context.searches.all_measurements(view)
    for trial in tried:
        links = {}
        if trial.state is TrialState.ACTIVE:
            links = await _links(context, call, trial.child)
        resources.append(trials.resource(view, trial, measured.get(trial.number, ()), links))
    return resources


async def _links(context: Context, call: Call, child: int) -> dict[str, str]:
    try:
        job = await context.jobs.by_id(call.caller, child)
    except NotFound:
        return {}
    return dict(await context.web_access(call.caller, job, call.origin))


def _format(call: Call, document: dict[str, Any], read_mask: Mask | None = None) -> dict[str, Any]:
    resource = field_mask.apply(read_mask, document)
    return enum_numbers.apply(resource, HyperparameterTuningJob) if call.numbers else resource
