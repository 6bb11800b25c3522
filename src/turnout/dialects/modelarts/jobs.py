"""Training jobs: create, details, change, stop, delete."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import (
    algorithms,
    answer,
    body,
    code,
    decode,
    experiments,
    find,
    looking,
    quotas,
    reply,
    running,
    search_yaml,
    translate,
    wire,
    wire_spec,
    workspaces,
)
from turnout.dialects.modelarts.body import DEFAULT_WORKSPACE
from turnout.dialects.modelarts.errors import (
    BAD_ACTION,
    BAD_OBS_PATH,
    INVALID,
    NOT_STOPPABLE,
    STATE_CHANGED,
    UNSUPPORTED,
)
from turnout.dialects.modelarts.house import House, Routes
from turnout.dialects.modelarts.phases import phase
from turnout.errors import AlreadyExists, Denied, Invalid, NotFound, Unsupported, WrongState
from turnout.job import Asset, Job, NewJob
from turnout.service import Caller, JobView

MOST_AT_ONCE = 100
FIXED_ANNOTATIONS = ("fault-tolerance/", "job_template")
STOPPABLE = ("Pending", "Running")


class _Action(msgspec.Struct):
    action_type: str


class _Id(msgspec.Struct):
    id: str


class _Item(msgspec.Struct):
    metadata: _Id
    kind: str | None = None


class _Items(msgspec.Struct):
    jobs: list[_Item]


class _KeptRun(msgspec.Struct):
    code_dir: str = ""
    boot_file: str = ""


class _KeptTask(msgspec.Struct):
    algorithm: _KeptRun


class _Kept(msgspec.Struct):
    """Where a job's code is, in what is stored of it."""

    algorithm: _KeptRun = msgspec.field(default_factory=_KeptRun)
    tasks: list[_KeptTask] = []


async def create(house: House, request: Request, caller: Caller) -> Response:
    document = decode.decode_job(await request.body())
    workspace = document.metadata.workspace_id or DEFAULT_WORKSPACE
    await workspaces.enter(house, caller, workspace)
    experiment, is_new = await _experiment(house, caller, workspace, document)
    asset, config = await _algorithm(house, caller, document), await _config(house, caller, document)
    new = translate.new_job(document, _place(house, caller), asset, config=config)
    house.searches.check(new)
    new = await _checked(house, caller, new)
    await quotas.check(house, caller)
    await workspaces.check_quota(house, caller, workspace)
    if experiment and is_new:
        try:
            await house.assets.create(caller, experiment)
        except AlreadyExists:  # made by another request meanwhile, so there is one to join
            return await create(house, request, caller)
    try:
        job = await house.jobs.create(caller, new)
    except BaseException:
        if experiment and is_new:
            await house.assets.delete(caller, experiments.KIND, experiment.id)
        raise
    return reply.json(answer.created(job, new.document), 201)


async def show(house: House, request: Request, caller: Caller) -> Response:
    return reply.json(await _shown(house, await find.job(house, request, caller)))


async def change(house: House, request: Request, caller: Caller) -> Response:
    asked = decode.decode_update(await request.body())
    view = await find.job(house, request, caller)
    async with find.turn(view):
        view = await find.job(house, request, caller)
        kept, priority = _changed(view, asked)
        document = decode.check_kept(msgspec.json.encode(kept), "metadata.annotation")
        try:
            await house.jobs.amend(caller, view.job.id, document=document, priority=priority)
        except WrongState as error:
            raise WrongState(f"spec.schedule_policy.priority: {error.message}.", code=STATE_CHANGED) from None
    return reply.json(None)


async def delete(house: House, request: Request, caller: Caller) -> Response:
    view = await find.job(house, request, caller)
    await house.jobs.delete(caller, view.job.id)
    return reply.json("", 202)


async def delete_several(house: House, request: Request, caller: Caller) -> Response:
    """All of them or none: they are looked up first."""
    asked = (await body.read(request, _Items)).jobs
    if not 1 <= len(asked) <= MOST_AT_ONCE:
        raise Invalid(f"jobs must be 1 to {MOST_AT_ONCE}, not {len(asked)}.", field="jobs", code=INVALID)
    views = {item.metadata.id: await find.by_uuid(house, caller, item.metadata.id) for item in asked}
    if len({view.job.scope for view in views.values()}) > 1:
        raise Invalid("jobs must all be of one workspace.", field="jobs", code=INVALID)
    for view in views.values():
        await house.jobs.delete(caller, view.job.id)
    return reply.json(None)


async def act(house: House, request: Request, caller: Caller) -> Response:
    action = (await body.read(request, _Action)).action_type
    view = await find.job(house, request, caller)
    if action != "terminate":
        raise Invalid(f"action_type must be terminate, not {action!r}.", field="action_type", code=BAD_ACTION)
    if phase(view.job).phase not in STOPPABLE:
        raise _not_stoppable(view.job)
    try:
        await house.jobs.stop(caller, view.job.id)
    except WrongState:
        raise _not_stoppable(view.job) from None
    view = await house.jobs.by_id(caller, view.job.id)
    return reply.json(await _shown(house, view), 202)


async def check_name(house: House, request: Request, caller: Caller) -> Response:
    workspace = body.query_text(request, "workspace_id", DEFAULT_WORKSPACE)
    name = body.query_text(request, "job_name")
    await workspaces.enter(house, caller, workspace)
    try:
        await house.jobs.by_handle(caller, workspaces.scope_of(workspace), name)
    except NotFound:
        return reply.json({"is_duplicate": False})
    return reply.json({"is_duplicate": True})


ROUTES: Routes = [
    ("POST", "/training-jobs", create),
    ("POST", "/training-jobs/batch-delete", delete_several),
    ("GET", "/training-jobs/{training_job_id}", show),
    ("PUT", "/training-jobs/{training_job_id}", change),
    ("DELETE", "/training-jobs/{training_job_id}", delete),
    ("POST", "/training-jobs/{training_job_id}/actions", act),
    ("GET", "/training-job-names", check_name),
]


def _place(house: House, caller: Caller) -> translate.Place:
    return translate.Place(caller.project, house.settings, caller.key)


async def _algorithm(house: House, caller: Caller, document: wire.Job) -> Asset | None:
    asked = document.algorithm.id if document.algorithm else None
    return await algorithms.by_id(house, caller, asked) if asked else None


async def _config(house: House, caller: Caller, document: wire.Job) -> bytes | None:
    """What `autosearch_config_path` holds, if a search is described by one."""
    path = document.algorithm.autosearch_config_path if document.algorithm and not document.tasks else None
    return await code.read(house, caller, path, translate.CONFIG_PATH, search_yaml.LARGEST) if path else None


async def _experiment(
    house: House, caller: Caller, workspace: str, document: wire.Job
) -> tuple[Asset | None, bool]:
    """The experiment that the job joins, put into the document, and whether it is yet to be made."""
    asked = document.metadata.training_experiment_reference
    if asked is None or not (asked.id or asked.name):
        return None, False
    if asked.id:
        found, is_new = await experiments.by_id(house, caller, asked.id), False
    else:
        found, is_new = await experiments.by_name(house, caller, workspace, asked)
    document.metadata.training_experiment_reference = wire.Experiment(found.id, found.name, asked.description)
    return found, is_new


async def _checked(house: House, caller: Caller, new: NewJob) -> NewJob:
    """What can be known now about the places that the job names, with what its user should know about them."""
    kept = msgspec.json.decode(new.document, type=_Kept)
    runs = {"algorithm": kept.algorithm} if not kept.tasks else {}
    runs |= {f"tasks[{index}].algorithm": task.algorithm for index, task in enumerate(kept.tasks)}
    for field, run in runs.items():
        if run.code_dir:
            await code.look(house, caller, run.code_dir, run.boot_file, field)
    sources = [(mount.source, mount.read_only) for mount in new.spec.mounts]
    sources += [(new.spec.logs.to, False)] if new.spec.logs else []
    try:
        notes = [house.storage.check(source, read_only, caller.project) for source, read_only in sources]
    except Invalid as error:
        raise Invalid(error.message, field=error.field, code=error.code or BAD_OBS_PATH) from None
    except Denied as error:
        raise Invalid(
            f"{error.message}.", field=error.field, code=f"ModelArts.{code.NO_PERMISSION}"
        ) from None
    return msgspec.structs.replace(new, notes=(*new.notes, *(note for note in notes if note)))


def _changed(view: JobView, asked: wire_spec.Update) -> tuple[dict[str, Any], int | None]:
    """What is kept from now on, and the new priority, if there is one."""
    kept: dict[str, Any] = msgspec.json.decode(view.document)
    if asked.description is not None:
        kept["metadata"]["description"] = body.text("description", asked.description, 256)
    priority = _change_spec(kept, asked.spec) if asked.spec else None
    if asked.endpoints is not None:
        kept["endpoints"] = msgspec.to_builtins(asked.endpoints)
    for key, value in ((asked.metadata and asked.metadata.annotation) or {}).items():
        annotations = kept["metadata"].setdefault("annotations", {})
        if key.startswith(FIXED_ANNOTATIONS) and annotations.get(key) != value:
            raise _fixed(f"metadata.annotation.{key}")
        annotations[key] = value
    return kept, priority


def _change_spec(kept: dict[str, Any], asked: wire_spec.UpdateSpec) -> int | None:
    """Puts it into the document; the new priority, if there is one."""
    spec = kept.setdefault("spec", {})
    if asked.notification is not None:
        running.check_notification(asked.notification, "spec.notification")
        spec["notification"] = msgspec.to_builtins(asked.notification)
    policy = asked.schedule_policy
    if policy is None:
        return None
    old = spec.get("schedule_policy", {})
    if policy.preemptible is not None and policy.preemptible != old.get("preemptible", False):
        raise _fixed("spec.schedule_policy.preemptible")
    running.check_priority(policy.priority, "spec.schedule_policy.priority")
    spec["schedule_policy"] = old | msgspec.to_builtins(policy)
    return policy.priority


async def _shown(house: House, view: JobView) -> dict[str, Any]:
    return answer.job(view, await house.jobs.past(view), house.clock(), await looking.trials_of(house, view))


def _fixed(field: str) -> Unsupported:
    return Unsupported(f"{field} cannot be changed once the job is there.", field=field, code=UNSUPPORTED)


def _not_stoppable(job: Job) -> WrongState:
    return WrongState(
        f"The training job is {phase(job).phase}, and cannot be stopped.",
        field="training_job_id",
        code=NOT_STOPPABLE,
    )
