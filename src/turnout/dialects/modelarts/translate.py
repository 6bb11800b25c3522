"""Translates ModelArts' documents into jobs. `jobs/render` is the reverse.

The document that is stored with a job has the form of an answer, without the id, the times and the status.
"""

import re
from typing import Any, NamedTuple

import msgspec

from turnout import config
from turnout.dialects.modelarts import errors, locations, wire
from turnout.dialects.modelarts.algorithms import merge
from turnout.dialects.modelarts.catalogue import flavor
from turnout.dialects.modelarts.errors import invalid, quoted
from turnout.dialects.modelarts.jobs import channels, parameters, run_options
from turnout.dialects.modelarts.names import DEFAULT_WORKSPACE, DIALECT, scope_of
from turnout.dialects.modelarts.program import build
from turnout.dialects.modelarts.search import config_file, definition
from turnout.errors import Invalid, Unsupported
from turnout.job import Asset, Mount, NewJob, Role, Search, Spec
from turnout.service.images import ImageRules

ROLE = "worker"
TEMPLATE = "job_template"
HETEROGENEOUS = "Template RL"
KINDS = ("job", "hetero_job")
DEBUG = "debug"
PRODUCTION = "production"
"""The default runtime_type."""
MAX_TASKS = 16
CONFIG_PATH = "algorithm.autosearch_config_path"

_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_WORKSPACE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_encode = msgspec.json.Encoder().encode


class TranslationContext(NamedTuple):
    """Everything besides the document that a translation depends on."""

    project: str
    settings: config.Settings
    user: str = ""
    """The id of the caller's key."""
    images: ImageRules | None = None

    def settle(self, built: build.BuiltProgram, cluster: str, notes: list[str]) -> build.BuiltProgram:
        """With what stands for its image or engine. Raises Invalid."""
        more: dict[str, None] = {}
        rules = self.images or ImageRules.of(self.settings)
        try:
            program = rules.settle(built.program, self.project, cluster, more)
        except (Invalid, Unsupported) as error:
            raise invalid(errors.NO_COMMAND, "engine.image_url", f": {error.message}.") from None
        notes += more
        if program.image and program.runtime not in ("", built.program.runtime):
            program = msgspec.structs.replace(program, wants=f"the image {program.image}")
        return built._replace(program=program)


class _Parts(NamedTuple):
    """A job's roles, and the parts of the job that come with them."""

    stored: dict[str, Any]
    """`algorithm` or `tasks`, and `resource` if the job has one."""
    roles: tuple[Role, ...]
    mounts: list[Mount]
    scratch: tuple[str, ...]
    cluster: str
    pool: str
    search: Search | None = None


def new_job(
    document: wire.Job,
    translation: TranslationContext,
    algorithm: Asset | None,
    *,
    config: bytes | None = None,
    trial_inputs: build.TrialInputs | None = None,
) -> NewJob:
    """Makes all checks that need only the document. The caller checks the sources in storage.

    `config` is the content of `autosearch_config_path`. Without it, a job that has the path fails when it starts.
    `trial_inputs` is for a trial of such a search.
    """
    metadata, spec = document.metadata, document.spec or wire.Spec()
    workspace = metadata.workspace_id or DEFAULT_WORKSPACE
    _check_head(document, workspace)
    notes: list[str] = []
    policy = run_options.policy(spec, metadata.annotations or {}, translation.settings)
    parts = (
        _from_tasks(document, translation, notes)
        if document.tasks
        else _from_algorithm(document, translation, algorithm, notes, config, trial_inputs)
    )
    mounts = [*parts.mounts, *run_options.volumes(spec.volumes, parts.pool)]
    run_options.check_no_overlap(mounts)
    _check_scratch(parts.scratch, mounts)
    paths = [spec.log_export_path, *(task.log_export_path for task in document.tasks or ())]
    stored = _stored_document(document, parts, workspace, translation.user)
    return NewJob(
        project=translation.project,
        dialect=DIALECT,
        scope=scope_of(workspace),
        handle=metadata.name,
        name=metadata.name,
        cluster=parts.cluster,
        spec=Spec(
            roles=parts.roles,
            mounts=tuple(mounts),
            scratch=(*locations.SCRATCH, *parts.scratch),
            working_dir=locations.HOME,
            policy=policy,
            logs=run_options.log_export(paths, translation.settings, notes),
            debug=spec.runtime_type == DEBUG,
            notify=run_options.notify(spec.notification, translation.settings, notes),
            search=parts.search,
        ),
        document=_encode(stored),
        notes=tuple(notes),
        labels=labels(stored),
    )


def labels(stored: dict[str, Any]) -> dict[str, str]:
    """The labels by which a job can be listed, from its stored document."""
    algorithm, spec = stored.get("algorithm") or {}, stored.get("spec") or {}
    metadata = stored.get("metadata") or {}
    found = {
        "kind": stored.get("kind"),
        "algorithm_id": algorithm.get("id"),
        "algorithm_name": algorithm.get("name"),
        "pool_id": _pool(stored),
        "user_id": metadata.get("user_name"),
        "user_name": metadata.get("user_name"),
        "runtime_type": spec.get("runtime_type"),
        "training_experiment_id": (metadata.get("training_experiment_reference") or {}).get("id"),
        "train_type": stored.get("train_type"),
    }
    return {key: value for key, value in found.items() if value}


def _pool(stored: dict[str, Any]) -> str | None:
    resource = stored["spec"].get("resource") or {}
    pools = [
        resource.get("pool_id"),
        *(task["task_resource"].get("pool_id") for task in stored.get("tasks") or ()),
    ]
    return next((pool for pool in pools if pool), None)


def _check_head(document: wire.Job, workspace: str) -> None:
    if document.kind not in KINDS:
        raise invalid(errors.INVALID, "kind", f": {quoted(document.kind)} must be one of {', '.join(KINDS)}.")
    if not _WORKSPACE.fullmatch(workspace):
        detail = f": {quoted(workspace)} must have 1 to 64 letters, digits, `_` and `-`."
        raise invalid(errors.INVALID, "metadata.workspace_id", detail)
    template = (document.metadata.annotations or {}).get(TEMPLATE)
    if (template == HETEROGENEOUS or document.kind == "hetero_job") and not document.tasks:
        raise invalid(errors.INVALID, "tasks", " is missing: a heterogeneous job has a task for each role.")


def _from_algorithm(
    document: wire.Job,
    translation: TranslationContext,
    asset: Asset | None,
    notes: list[str],
    config: bytes | None,
    trial_inputs: build.TrialInputs | None,
) -> _Parts:
    requested = document.algorithm or wire.JobAlgorithm()
    merged = merge.merge(requested, asset, translation.settings, notes)
    run = merged.algorithm
    resource = (document.spec and document.spec.resource) or wire.Resource()
    resolved = flavor.resolve(resource, translation.settings, "spec.resource")
    inputs = channels.inputs(channels.as_list(run.inputs), translation.settings, "algorithm.inputs")
    outputs = channels.outputs(channels.as_list(run.outputs), "algorithm.outputs")
    channels.check_distinct(channels.as_list(run.inputs), channels.as_list(run.outputs), "algorithm.outputs")
    search = _search(run, merged.parameters, config, notes)
    failure = _missing_config(run.autosearch_config_path) if config is None else ""
    notes += [failure] if failure else []
    request = build.ProgramRequest(
        "algorithm",
        run,
        run.engine,
        run.command or "",
        merged.parameters,
        inputs,
        outputs,
        resolved.nodes,
        not resolved.pool,
        trial_inputs=trial_inputs if config is None else build.TrialInputs(_framework(run)),
        failure=failure,
    )
    built = build.build_program(request, notes)
    built = translation.settle(built, resolved.cluster, notes)
    flavor.check_fits(resolved, merged.requirements, built.engine.ascend, "spec.resource")
    role = Role(
        ROLE,
        built.program,
        resolved.nodes,
        resolved.resources,
        built.env,
        leads=True,
        machine=resolved.flavor.id,
        accelerator=resolved.flavor.product,
    )
    stored = {
        "algorithm": _stored_algorithm(run, built, request),
        "resource": flavor.stored(resource, resolved),
    }
    return _Parts(stored, (role,), built.mounts, built.scratch, resolved.cluster, resolved.pool, search)


def _search(
    run: wire.JobAlgorithm, merged: list[dict[str, Any]], config: bytes | None, notes: list[str]
) -> Search | None:
    requested = run.policies and run.policies.auto_search
    field = "algorithm.policies.auto_search"
    if run.autosearch_config_path:
        locations.source(run.autosearch_config_path, CONFIG_PATH)
        if requested is not None and definition.is_given(requested):
            raise invalid(errors.BAD_SEARCH, field, " cannot be used with autosearch_config_path.")
        _framework(run)
        return None if config is None else config_file.to_search(config, CONFIG_PATH, notes)
    if _framework(run):
        notes.append("algorithm.autosearch_framework_path has no effect without autosearch_config_path")
    return (
        definition.to_search(requested, merged, field)
        if requested is not None and definition.is_given(requested)
        else None
    )


def _missing_config(path: str | None) -> str:
    """The failure of a job whose configuration file does not exist. Like the cloud, the service creates the job."""
    return f"{CONFIG_PATH}: there was nothing at {quoted(path)} when the job was created" if path else ""


def _framework(run: wire.JobAlgorithm) -> str:
    text = run.autosearch_framework_path
    return locations.source(text, "algorithm.autosearch_framework_path") if text else ""


def _from_tasks(document: wire.Job, translation: TranslationContext, notes: list[str]) -> _Parts:
    """Each task becomes a role. The first one leads."""
    tasks = document.tasks or []
    if len(tasks) > MAX_TASKS:
        raise invalid(errors.INVALID, "tasks", f" has {len(tasks)} entries; at most {MAX_TASKS} are allowed.")
    spec = document.spec or wire.Spec()
    if spec.resource and (spec.resource.flavor_id or spec.resource.node_count):
        detail = " cannot be used with tasks: each task has its task_resource."
        raise invalid(errors.INVALID, "spec.resource", detail)
    default_pool = (spec.resource and spec.resource.pool_id) or ""
    names = _role_names(tasks)
    parts = _Parts({"tasks": []}, (), [], (), "", "")
    counts = (0, 0)
    for index, task in enumerate(tasks):
        parts, counts = _add_task(parts, task, names[index], index, counts, default_pool, translation, notes)
    if spec.resource:
        parts.stored["resource"] = msgspec.to_builtins(spec.resource)
    if document.algorithm:
        notes.append("algorithm has no effect: each task has its own")
        parts.stored["algorithm"] = msgspec.to_builtins(document.algorithm)
    return parts


def _add_task(
    parts: _Parts,
    task: wire.Task,
    name: str,
    index: int,
    counts: tuple[int, int],
    default_pool: str,
    translation: TranslationContext,
    notes: list[str],
) -> tuple[_Parts, tuple[int, int]]:
    field = f"tasks[{index}].algorithm"
    run = task.algorithm or wire.TaskAlgorithm()
    own = run.job_config or wire.TaskConfig()
    resolved = _task_flavor(task, default_pool, index, translation)
    if parts.cluster and resolved.cluster != parts.cluster:
        detail = f": {quoted(resolved.pool)} must be the pool of the tasks before it: a job runs in one pool."
        raise invalid(errors.INVALID, f"tasks[{index}].task_resource.pool_id", detail)
    task_inputs = channels.of_task(run.inputs, own.inputs)
    task_outputs = channels.of_task(run.outputs, own.outputs)
    channels.check_no_datasets(task_inputs, f"{field}.inputs")
    channels.check_distinct(task_inputs, task_outputs, f"{field}.outputs")
    request = build.ProgramRequest(
        field,
        run,
        run.engine or own.engine,
        run.command or "",
        parameters.for_job(own.parameters, f"{field}.job_config.parameters"),
        channels.inputs(task_inputs, translation.settings, f"{field}.inputs", counts[0]),
        channels.outputs(task_outputs, f"{field}.outputs", counts[1]),
        resolved.nodes,
        not resolved.pool,
        index,
    )
    built = build.build_program(request, notes)
    built = translation.settle(built, resolved.cluster, notes)
    flavor.check_fits(resolved, [], built.engine.ascend, f"tasks[{index}].task_resource")
    role = Role(
        name,
        built.program,
        resolved.nodes,
        resolved.resources,
        built.env,
        leads=not index,
        machine=resolved.flavor.id,
        accelerator=resolved.flavor.product,
    )
    parts.stored["tasks"].append(_stored_task(task, resolved, built, request, name))
    scratch = tuple(dict.fromkeys((*parts.scratch, *built.scratch)))
    mounts = [*parts.mounts, *(mount for mount in built.mounts if mount not in parts.mounts)]
    parts = _Parts(parts.stored, (*parts.roles, role), mounts, scratch, resolved.cluster, resolved.pool)
    return parts, (counts[0] + len(task_inputs), counts[1] + len(task_outputs))


def _task_flavor(
    task: wire.Task, default_pool: str, index: int, translation: TranslationContext
) -> flavor.ResolvedFlavor:
    field = f"tasks[{index}].task_resource"
    requested = task.task_resource
    if requested is None or requested.node_count is None:
        raise invalid(errors.INVALID, f"{field}.node_count", " is missing.")
    resource = wire.Resource(requested.flavor_id, requested.node_count, requested.pool_id or default_pool)
    return flavor.resolve(resource, translation.settings, field)


def _role_names(tasks: list[wire.Task]) -> list[str]:
    names: list[str] = []
    for index, task in enumerate(tasks):
        default_names = (f"{ROLE}{number or ''}" for number in range(len(tasks) + 1))
        given = {other.role for other in tasks}
        name = task.role or next(name for name in default_names if name not in names and name not in given)
        field = f"tasks[{index}].role"
        if not _ROLE.fullmatch(name):
            detail = (
                f": {quoted(name)} must have 1 to 32 letters, digits, `_` and `-`, and begin with a letter."
            )
            raise invalid(errors.INVALID, field, detail)
        if name in names:
            raise invalid(errors.INVALID, field, f": {name} is already the role of another task.")
        names.append(name)
    return names


def _check_scratch(scratch: tuple[str, ...], mounts: list[Mount]) -> None:
    for own in scratch:
        for mount in mounts:
            if locations.covers(own, mount.target) or locations.covers(mount.target, own):
                detail = f": {own} and {mount.target}, where {mount.source} is mounted, must not contain each other."
                raise invalid(errors.BAD_LOCAL_CODE_DIR, "local_code_dir", detail)


def _stored_algorithm(
    run: wire.JobAlgorithm, built: build.BuiltProgram, request: build.ProgramRequest
) -> dict[str, Any]:
    stored = {key: value for key, value in msgspec.to_builtins(run).items() if value not in ("", [], {})}
    requested = run.policies and run.policies.auto_search
    policies = {"auto_search": definition.stored(requested)} if definition.is_given(requested) else {}
    stored |= {"parameters": request.parameters, "engine": built.engine.stored, "policies": policies}
    environments = _environments(run, stored)
    first = {key: stored[key] for key in ("id", "name") if key in stored}
    return {**first, **stored, **_channels(request), **environments}


def _stored_task(
    task: wire.Task,
    resolved: flavor.ResolvedFlavor,
    built: build.BuiltProgram,
    request: build.ProgramRequest,
    name: str,
) -> dict[str, Any]:
    """`inputs` and `outputs` are the first channel, an object as in the answer's tables and in Huawei's SDK.

    If there are several channels, `job_config` has the list.
    """
    algorithm = {
        key: value
        for key, value in msgspec.to_builtins(task.algorithm or wire.TaskAlgorithm()).items()
        if value not in ("", [], {})
    }
    if "job_config" in algorithm and "parameters" in algorithm["job_config"]:
        algorithm["job_config"]["parameters"] = request.parameters
    algorithm["engine"] = {
        **built.engine.stored,
        "run_user": "" if built.engine.user is None else str(built.engine.user),
        "v1_compatible": built.engine.v1,
    }
    all_channels = _channels(request)
    several = {key: value for key, value in all_channels.items() if len(value) > 1}
    if several:
        algorithm["job_config"] = algorithm.get("job_config", {}) | several
    first = {key: value[0] for key, value in all_channels.items()}
    environments = _environments(request.run, algorithm)
    stored: dict[str, Any] = {"role": name, "algorithm": {**algorithm, **first, **environments}}
    pool = {"pool_id": resolved.pool} if resolved.pool else {}
    listed = resolved.flavor.listed() if resolved.flavor.id else {}
    stored["task_resource"] = {**listed, "node_count": resolved.nodes, **pool}
    if task.log_export_path:
        stored["log_export_path"] = msgspec.to_builtins(task.log_export_path)
    return stored


def _channels(request: build.ProgramRequest) -> dict[str, list[dict[str, Any]]]:
    both = {"inputs": request.inputs.stored, "outputs": request.outputs.stored}
    return {key: stored for key, stored in both.items() if stored}


def _environments(run: wire.Run, stored: dict[str, Any]) -> dict[str, Any]:
    """Absent if empty, else an object or a list as in the request: Terraform reads back the object that it sent,
    the reference's table has a list.
    """
    stored.pop("environments", None)
    found = build.environment(run.environments, "environments")
    if not found:
        return {}
    return {"environments": [found] if isinstance(run.environments, list) else found}


def _stored_document(document: wire.Job, parts: _Parts, workspace: str, user: str) -> dict[str, Any]:
    metadata = {
        "name": document.metadata.name,
        "description": document.metadata.description,
        "workspace_id": workspace,
        "user_name": user,
    }
    more = msgspec.to_builtins(document.metadata)
    metadata |= {key: value for key, value in more.items() if key not in metadata and value}
    spec = msgspec.to_builtins(document.spec) if document.spec else {}
    spec.pop("resource", None)
    spec.setdefault("runtime_type", PRODUCTION)
    paths = spec.get("log_export_path") or {}
    spec["log_export_path"] = {key: value for key, value in paths.items() if value}
    stored = dict(parts.stored)
    if "resource" in stored:
        spec = {"resource": stored.pop("resource"), **spec}
    rest = {
        key: value
        for key, value in msgspec.to_builtins(document).items()
        if key in ("endpoints", "train_type", "ftjob_config")
    }
    return {"kind": document.kind, "metadata": metadata, **stored, "spec": spec, **rest}
