"""Hyperparameter tuning jobs: create, get, list, cancel, delete."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from turnout import pools
from turnout.dialects import Context
from turnout.dialects.vertex import operations, render, reply, translate
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.custom_jobs import handlers as custom_jobs
from turnout.dialects.vertex.job_list import Collection, in_form, list_page
from turnout.dialects.vertex.persistent_resources import handlers as persistent_resources
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.field_mask import Mask
from turnout.dialects.vertex.tuning import trials
from turnout.dialects.vertex.tuning.wire import HyperparameterTuningJob, Trial
from turnout.dialects.vertex.wire import CustomJobSpec
from turnout.errors import NotFound
from turnout.job import Compare, Measurement, TrialState
from turnout.job import Trial as JobTrial
from turnout.service import JobView

KIND = "HyperparameterTuningJob"
_ROWS_AT_ONCE = 300
"""Trials and measurements that are rendered at once, about a millisecond. Up to as many are rendered on the loop."""


async def create(context: Context, call: Call) -> Response:
    view = await submit(context, call)
    return reply.json(in_form(call, render.tuning_job(view), HyperparameterTuningJob))


async def submit(context: Context, call: Call) -> JobView:
    decoded = codec.tuning_job(call.body)
    spec = decoded.message.trial_job_spec or CustomJobSpec()
    installation = await persistent_resources.installation(context, call, spec.persistent_resource_id)
    new = translate.new_tuning_job(decoded, installation)
    new = await custom_jobs.check_mounts(
        context, call, new, decoded.message.trial_job_spec, decoded.path / "trialJobSpec"
    )
    context.searches.check(new)
    job = await custom_jobs.create_job(context, call, new)
    return JobView(job, (), new.document)


async def get(context: Context, call: Call) -> Response:
    view = await find(context, call)
    resource = render.tuning_job(view)
    tried = await context.searches.trials(view)
    measured = await context.searches.all_measurements(view)
    links = {
        trial.number: await _links(context, call, trial.child)
        for trial in tried
        if trial.state is TrialState.ACTIVE
    }
    rendered: list[dict[str, Any]] = []

    def render_piece(piece: Sequence[JobTrial]) -> None:
        for trial in piece:
            shown = measured.get(trial.number, ())
            rendered.append(trials.resource(view, trial, shown, links.get(trial.number)))

    def respond() -> Response:
        with_trials = resource | {"trials": rendered} if rendered else resource
        return reply.json(in_form(call, with_trials, HyperparameterTuningJob))

    if len(tried) + sum(map(len, measured.values())) <= _ROWS_AT_ONCE:
        render_piece(tried)
        return respond()
    for piece in _pieces(tried, measured):
        await pools.logs.run(view.job.project, render_piece, piece)
    return await pools.logs.run(view.job.project, respond)


async def list_jobs(context: Context, call: Call) -> Response:
    """Newest first, without their trials."""
    collection = Collection(
        "hyperparameterTuningJobs",
        HyperparameterTuningJob,
        Compare("scope", "=", translate.tuning_scope(call.location)),
        token_location=f"{KIND}/{call.location}",
    )
    return await list_page(context, call, collection, _list_item)


async def cancel(context: Context, call: Call) -> Response:
    return await custom_jobs.cancel_job(context, call, await find(context, call))


async def delete(context: Context, call: Call) -> Response:
    view = await find(context, call)
    custom_jobs.check_ended(view, KIND, render.tuning_name(view.job))
    await custom_jobs.check_alone(context, view, KIND, render.tuning_name(view.job))
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
    return reply.json({"optimalTrials": [in_form(call, resource, Trial)]})


async def find(context: Context, call: Call) -> JobView:
    """The job that the address names. Raises NotFound."""
    name = f"{call.parent}/hyperparameterTuningJobs/{call.resource[1][:100]}"
    view = await custom_jobs.find_by_id(context, call, KIND, name)
    if view.job.scope != translate.tuning_scope(call.location):
        raise NotFound(f"The {KIND} {name} does not exist.")
    return view


async def _list_item(view: JobView, read_mask: Mask | None) -> dict[str, Any]:
    return render.locked(view, render.tuning_name(view.job)) if view.locked else render.tuning_job(view)


def _pieces(
    tried: Sequence[JobTrial], measured: Mapping[int, Sequence[Measurement]]
) -> Iterator[list[JobTrial]]:
    """Consecutive trials that are rendered at once. One with very many measurements is a piece of its own."""
    piece: list[JobTrial] = []
    rows = 0
    for trial in tried:
        more = 1 + len(measured.get(trial.number, ()))
        if piece and rows + more > _ROWS_AT_ONCE:
            yield piece
            piece, rows = [], 0
        piece.append(trial)
        rows += more
    if piece:
        yield piece


async def _links(context: Context, call: Call, child: int) -> dict[str, str]:
    try:
        job = await context.jobs.by_id(call.caller, child)
    except NotFound:
        return {}
    return dict(await context.web_access(call.caller, job, call.origin))
