"""Training pipelines: create, get, list, cancel, delete."""

from typing import Any

from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import operations, reply, translate
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.custom_jobs import handlers as custom_jobs
from turnout.dialects.vertex.job_list import Collection, in_form, list_page
from turnout.dialects.vertex.models import names, versions
from turnout.dialects.vertex.persistent_resources import handlers as persistent_resources
from turnout.dialects.vertex.pipelines import backing, filter, render
from turnout.dialects.vertex.pipelines.translate import (
    MODEL,
    PENDING,
    TASK,
    check_supported,
    new_job,
    trial_or_job_spec,
)
from turnout.dialects.vertex.pipelines.wire import TrainingPipeline, TuningTask
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.codec import Decoded
from turnout.dialects.vertex.protobuf.field_mask import Mask
from turnout.errors import NotFound, WrongState
from turnout.job import All, Compare, Label, State
from turnout.job import Any as AnyOf
from turnout.service import JobView

KIND = "TrainingPipeline"


async def create(context: Context, call: Call) -> Response:
    return reply.json(await _resource(context, call, await submit(context, call)))


async def submit(context: Context, call: Call) -> JobView:
    decoded = codec.decode(call.body, TrainingPipeline, "training_pipeline")
    check_supported(decoded.message, decoded.path)
    message = decoded.message
    task = backing.decode_task(message.training_task_inputs, message.training_task_definition)
    path = task.path / "trialJobSpec" if isinstance(task.message, TuningTask) else task.path
    spec = trial_or_job_spec(task.message)
    installation = await persistent_resources.installation(context, call, spec.persistent_resource_id)
    new = new_job(decoded, task, installation)
    await _check_models(context, call, decoded)
    new = await custom_jobs.check_mounts(context, call, new, spec, path)
    if new.spec.search:
        context.searches.check(new)
    job = await custom_jobs.create_job(context, call, new)
    return JobView(job, (), new.document)


async def get(context: Context, call: Call) -> Response:
    return reply.json(await _resource(context, call, await find(context, call)))


async def list_pipelines(context: Context, call: Call) -> Response:
    """The pipelines of one location, newest first."""
    scopes = (translate.scope(call.location), translate.tuning_scope(call.location))
    query = All(AnyOf(*(Compare("scope", "=", scope) for scope in scopes)), Label(TASK, "!=", None))
    collection = Collection(
        "trainingPipelines", TrainingPipeline, query, f"{KIND}/{call.location}", parse=filter.parse
    )

    async def item(view: JobView, read_mask: Mask | None) -> dict[str, Any]:
        labels = await _labels(context, view)
        return render.locked(view, labels) if view.locked else render.pipeline(view, labels)

    return await list_page(context, call, collection, item)


async def cancel(context: Context, call: Call) -> Response:
    """Returns without waiting for the end. No effect on a pipeline that has ended."""
    return await custom_jobs.cancel_job(context, call, await find(context, call))


async def delete(context: Context, call: Call) -> Response:
    """Also deletes the job. The model stays."""
    view = await find(context, call)
    name = render.name(view.job)
    custom_jobs.check_ended(view, KIND, name)
    if view.job.state is State.SUCCEEDED and (await _labels(context, view)).get(MODEL) == PENDING:
        raise WrongState(
            f"The {KIND} {name} is in state PIPELINE_STATE_RUNNING and cannot be deleted before it has made its model."
        )
    await context.jobs.delete(call.caller, view.job.id)
    return reply.json(operations.delete_operation(context, call))


async def find(context: Context, call: Call) -> JobView:
    """The pipeline that the address names. Raises NotFound."""
    name = f"{call.parent}/trainingPipelines/{call.resource[1][:100]}"
    view = await custom_jobs.find_by_id(context, call, KIND, name)
    scopes = (translate.scope(call.location), translate.tuning_scope(call.location))
    if view.job.scope not in scopes or TASK not in await _labels(context, view):
        raise NotFound(f"The {KIND} {name} does not exist.")
    return view


async def _check_models(context: Context, call: Call, decoded: Decoded[TrainingPipeline]) -> None:
    """Raises NotFound for an unknown parent, AlreadyExists for an id that is taken."""
    pipeline, path = decoded
    if pipeline.parent_model:
        parent = names.parse(pipeline.parent_model, call, (path / "parentModel").as_sent)
        await versions.asset_of(context, call.caller, parent)
    elif pipeline.model_id:
        field = (path / "modelId").as_sent
        await versions.check_free(context, call.caller, call.location, pipeline.model_id, field)


async def _resource(context: Context, call: Call, view: JobView) -> dict[str, Any]:
    tail = await custom_jobs.log_tail(context, view)
    resource = render.pipeline(view, await _labels(context, view), tail)
    return in_form(call, resource, TrainingPipeline)


async def _labels(context: Context, view: JobView) -> dict[str, str]:
    return (await context.jobs.labels([view.job.id])).get(view.job.id, {})
