"""Custom jobs: create, get, list, cancel, delete."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import operations, render, reply, translate
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.custom_jobs import mounts, package_command
from turnout.dialects.vertex.job_list import Collection, in_form, list_page
from turnout.dialects.vertex.persistent_resources import handlers as persistent_resources
from turnout.dialects.vertex.pipelines import translate as pipelines
from turnout.dialects.vertex.pipelines.render import name as pipeline_name
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.field_mask import Mask
from turnout.dialects.vertex.protobuf.field_path import FieldPath
from turnout.dialects.vertex.resource_names import JobName
from turnout.dialects.vertex.tuning.trials import SCOPE
from turnout.dialects.vertex.wire import CustomJob, CustomJobSpec
from turnout.errors import Invalid, NotFound, Unavailable, WrongState
from turnout.job import Compare, Job, NewJob, State
from turnout.service import JobView

KIND = "CustomJob"
TAIL_BYTES = 2000
"""Bytes of the log that the error of a failed job ends with."""
_LARGEST_ID = (1 << 63) - 1


async def create(context: Context, call: Call) -> Response:
    return reply.json(await _resource(context, call, await submit(context, call)))


async def submit(context: Context, call: Call) -> JobView:
    decoded = codec.custom_job(call.body)
    spec = decoded.message.job_spec or CustomJobSpec()
    installation = await persistent_resources.installation(context, call, spec.persistent_resource_id)
    new = translate.new_job(decoded, installation)
    new = await check_mounts(context, call, new, decoded.message.job_spec, decoded.path / "jobSpec")
    job = await create_job(context, call, new)
    return JobView(job, (), new.document)


async def get(context: Context, call: Call) -> Response:
    return reply.json(await _resource(context, call, await find(context, call)))


async def list_jobs(context: Context, call: Call) -> Response:
    """The jobs of one location, newest first."""
    scope = translate.scope(call.location)
    collection = Collection(
        "customJobs", CustomJob, Compare("scope", "=", scope), token_location=call.location
    )

    async def item(view: JobView, read_mask: Mask | None) -> dict[str, Any]:
        return render.locked(view) if view.locked else await _full_resource(context, call, view, read_mask)

    return await list_page(context, call, collection, item)


async def cancel(context: Context, call: Call) -> Response:
    """Returns without waiting for the end of the job. No effect on a job that has ended."""
    return await cancel_job(context, call, await find(context, call))


async def delete(context: Context, call: Call) -> Response:
    view = await find(context, call)
    check_ended(view, KIND, _name(view))
    await check_alone(context, view, KIND, _name(view))
    await context.jobs.delete(call.caller, view.job.id)
    return reply.json(operations.delete_operation(context, call))


async def create_job(context: Context, call: Call, new: NewJob) -> Job:
    """Creates the job. Raises Unavailable with Vertex' message."""
    new = msgspec.structs.replace(new, notes=(*new.notes, *await _shared_packages(context, call, new)))
    try:
        return await context.jobs.create(call.caller, new)
    except Unavailable as error:
        raise Unavailable(render.insufficient(call.location, error.message)) from None


async def find(context: Context, call: Call) -> JobView:
    """The job that the address names. It may be the job of a trial. Raises NotFound."""
    name = f"{call.parent}/customJobs/{call.resource[1][:100]}"
    view = await find_by_id(context, call, KIND, name)
    kind = view.job.scope.partition(":")[0]
    if kind not in (translate.DIALECT, SCOPE) or render.location_of(view.job) != call.location:
        raise NotFound(f"The {KIND} {name} does not exist.")
    return view


async def find_by_id(context: Context, call: Call, kind: str, name: str) -> JobView:
    """The job whose id is in the address, of any kind. Raises NotFound."""
    job_id = call.resource[1]
    if not (job_id.isascii() and job_id.isdecimal() and len(job_id) <= 19) or int(job_id) > _LARGEST_ID:
        raise NotFound(f"The {kind} {name} does not exist: its id must be a number.")
    try:
        return await context.jobs.by_id(call.caller, int(job_id))
    except NotFound:
        raise NotFound(f"The {kind} {name} does not exist.") from None


async def cancel_job(context: Context, call: Call, view: JobView) -> Response:
    if view.job.live:
        try:
            await context.jobs.stop(call.caller, view.job.id)
        except WrongState:  # it ended meanwhile
            return reply.empty()
    return reply.empty()


def check_ended(view: JobView, kind: str, name: str) -> None:
    """Raises WrongState."""
    if view.job.live:
        state = render.state(view.job).name
        raise WrongState(
            f"The {kind} {name} is in state {state} and cannot be deleted before it has ended. Cancel it first."
        )


async def check_alone(context: Context, view: JobView, kind: str, name: str) -> None:
    """Raises WrongState if the job belongs to a training pipeline."""
    labels = (await context.jobs.labels([view.job.id])).get(view.job.id, {})
    if pipelines.TASK in labels:
        raise WrongState(
            f"The {kind} {name} belongs to the training pipeline {pipeline_name(view.job)}. Delete the pipeline."
        )


async def check_mounts(
    context: Context, call: Call, new: NewJob, spec: CustomJobSpec | None, path: FieldPath
) -> NewJob:
    """Returns the job with notes about its sources. Raises Invalid if a package does not exist."""
    if not new.spec.mounts:
        return new
    fields = mounts.package_fields(spec, path) if spec else {}
    named = [(fields.get(mount.source, ""), mount) for mount in new.spec.mounts]
    try:
        notes = await context.sources.check(call.caller.project, named)
    except NotFound as error:
        raise Invalid(f"{error.field}: {error.message}.", field=error.field) from None
    return msgspec.structs.replace(new, notes=(*new.notes, *notes))


async def _shared_packages(context: Context, call: Call, new: NewJob) -> list[str]:
    """Notes about code that other projects can change: it was uploaded without the credentials of this one."""
    project = call.caller.project
    packages = [
        mount.source for mount in new.spec.mounts if mount.target.startswith(package_command.DIRECTORY)
    ]
    return [
        f"{uri} is in a bucket that every project can read and change: it was created without credentials, or by root."
        f" To keep code in the project {project}, upload it to a new bucket with the project's credentials"
        for uri in packages
        if await context.objects.is_shared(uri, project)
    ]


async def _resource(context: Context, call: Call, view: JobView) -> dict[str, Any]:
    return in_form(call, await _full_resource(context, call, view), CustomJob)


async def _full_resource(
    context: Context, call: Call, view: JobView, read_mask: Mask | None = None
) -> dict[str, Any]:
    """Leaves out costly fields that the mask excludes. Raises WrongState if the encryption key is missing."""
    tail = await log_tail(context, view) if read_mask is None or "error" in read_mask else ""
    links: Mapping[str, str] = {}
    if view.job.state is State.RUNNING and (read_mask is None or "webAccessUris" in read_mask):
        links = await context.web_access(call.caller, view, call.origin)
    return render.custom_job(view, tail=tail, web_access_uris=links)


async def log_tail(context: Context, view: JobView) -> str:
    """The last lines of the replica whose failure ended the job."""
    replica = render.first_failed(view.replicas) if view.job.state is State.FAILED else None
    if replica is None:
        return ""
    tail, _ = await context.logs.tail(view, replica.name, TAIL_BYTES)
    return tail.decode("utf-8", "replace")


def _name(view: JobView) -> str:
    return str(JobName(view.job.project, render.location_of(view.job), view.job.id))
