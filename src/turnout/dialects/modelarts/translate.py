"""ModelArts' documents as jobs. Knows both worlds; `answer` is the way back.

What is kept of a job is its document in the shape of an answer, whole but for its id, its times and its status.
"""

import re
from typing import Any, NamedTuple

import msgspec

from turnout import config
from turnout.dialects.modelarts import (
    auto_search,
    channels,
    faults,
    flavor,
    merge,
    parameters,
    places,
    program,
    running,
    search_yaml,
    wire,
    wire_spec,
)
from turnout.dialects.modelarts.faults import shown, wrong
from turnout.dialects.modelarts.keep_algorithm import keep_algorithm as keep_algorithm
from turnout.job import Asset, Mount, NewJob, Role, Search, Spec

DIALECT = "modelarts"
WORKSPACE = "0"
ROLE = "worker"
TEMPLATE = "job_template"
HETEROGENEOUS = "Template RL"
KINDS = ("job", "hetero_job")
DEBUG = "debug"
MAX_TASKS = 16
CONFIG_PATH = "algorithm.autosearch_config_path"

_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_WORKSPACE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_encode = msgspec.json.Encoder().encode


class Place(NamedTuple):
    """Where a job is to be: all that a translation follows from besides the document."""

    project: str
    settings: config.Settings
    user: str = ""
    """Who asks: the id of the key."""


class _Whole(NamedTuple):
    """A job's roles and everything that comes with them."""

    kept: dict[str, Any]
    """`algorithm` or `tasks`, and `resource` if it has one."""
    roles: tuple[Role, ...]
    mounts: list[Mount]
    scratch: tuple[str, ...]
    cluster: str
    pool: str
    search: Search | None = None


def scope(workspace: str) -> str:
    return f"{DIALECT}:{workspace or WORKSPACE}"


def new_job(
    document: wire.Job,
    place: Place,
    algorithm: Asset | None,
    *,
    config: bytes | None = None,
    searched: program.Searched | None = None,
) -> NewJob:
    """Checks everything that the document alone can tell; what lies in storage is for `checks`.

    `config` is the content of `autosearch_config_path`; `searched` is what a trial of such a search is given.
    """
    metadata, spec = document.metadata, document.spec or wire_spec.Spec()
    workspace = metadata.workspace_id or WORKSPACE
    _check_head(document, workspace)
    notes: list[str] = []
    policy = running.policy(spec, metadata.annotations or {}, place.settings)
    whole = (
        _of_tasks(document, place, notes)
        if document.tasks
        else _of_algorithm(document, place, algorithm, notes, config, searched)
    )
    mounts = [*whole.mounts, *running.volumes(spec.volumes, whole.pool)]
    running.check_apart(mounts)
    _check_scratch(whole.scratch, mounts)
    paths = [spec.log_export_path, *(task.log_export_path for task in document.tasks or ())]
    kept = _kept(document, whole, workspace, place.user)
    return NewJob(
        project=place.project,
        dialect=DIALECT,
        scope=scope(workspace),
        handle=metadata.name,
        name=metadata.name,
        cluster=whole.cluster,
        spec=Spec(
            roles=whole.roles,
            mounts=tuple(mounts),
            scratch=(*places.SCRATCH, *whole.scratch),
            working_dir=places.HOME,
            policy=policy,
            logs=running.log_export(paths, place.settings),
            debug=spec.runtime_type == DEBUG,
            search=whole.search,
        ),
        document=_encode(kept),
        notes=tuple(notes),
        labels=labels(kept),
    )


def labels(kept: dict[str, Any]) -> dict[str, str]:
    """What a job is found by, from what is kept of it."""
    algorithm, spec = kept.get("algorithm") or {}, kept.get("spec") or {}
    metadata = kept.get("metadata") or {}
    found = {
        "kind": kept.get("kind"),
        "algorithm_id": algorithm.get("id"),
        "algorithm_name": algorithm.get("name"),
        "pool_id": _pool(kept),
        "user_id": metadata.get("user_name"),
        "user_name": metadata.get("user_name"),
        "runtime_type": spec.get("runtime_type"),
        "training_experiment_id": (metadata.get("training_experiment_reference") or {}).get("id"),
        "train_type": kept.get("train_type"),
    }
    return {key: value for key, value in found.items() if value}


def _pool(kept: dict[str, Any]) -> str | None:
    resource = kept["spec"].get("resource") or {}
    pools = [
        resource.get("pool_id"),
        *(task["task_resource"].get("pool_id") for task in kept.get("tasks") or ()),
    ]
    return next((pool for pool in pools if pool), None)


def _check_head(document: wire.Job, workspace: str) -> None:
    if document.kind not in KINDS:
        raise wrong(faults.BAD_PARAM, "kind", f": {shown(document.kind)} must be one of {', '.join(KINDS)}.")
    if not _WORKSPACE.fullmatch(workspace):
        told = f": {shown(workspace)} must have 1 to 64 letters, digits, `_` and `-`."
        raise wrong(faults.BAD_PARAM, "metadata.workspace_id", told)
    template = (document.metadata.annotations or {}).get(TEMPLATE)
    if (template == HETEROGENEOUS or document.kind == "hetero_job") and not document.tasks:
        raise wrong(faults.BAD_PARAM, "tasks", " is missing: a heterogeneous job has one for each role.")


def _of_algorithm(
    document: wire.Job,
    place: Place,
    asset: Asset | None,
    notes: list[str],
    config: bytes | None,
    searched: program.Searched | None,
) -> _Whole:
    asked = document.algorithm or wire.JobAlgorithm()
    merged = merge.merge(asked, asset, place.settings, notes)
    run = merged.algorithm
    resource = (document.spec and document.spec.resource) or wire_spec.Resource()
    chosen = flavor.choose(resource, place.settings, "spec.resource")
    inputs = channels.inputs(channels.several(run.inputs), place.settings, "algorithm.inputs")
    outputs = channels.outputs(channels.several(run.outputs), "algorithm.outputs")
    search = _search(run, merged.parameters, config, notes)
    wanted = program.Wanted(
        "algorithm",
        run,
        run.engine,
        run.command or "",
        merged.parameters,
        inputs,
        outputs,
        chosen.nodes,
        not chosen.pool,
        searched=searched if config is None else program.Searched(_framework(run)),
    )
    made = program.make(wanted, place.settings, notes)
    flavor.check_fits(chosen, merged.requirements, made.engine.ascend, "spec.resource")
    role = Role(ROLE, made.program, chosen.nodes, chosen.resources, made.env, leads=True)
    kept = {"algorithm": _kept_algorithm(run, made, wanted), "resource": flavor.kept(resource, chosen)}
    return _Whole(kept, (role,), made.mounts, made.scratch, chosen.cluster, chosen.pool, search)


def _search(
    run: wire.JobAlgorithm, merged: list[dict[str, Any]], config: bytes | None, notes: list[str]
) -> Search | None:
    asked = run.policies and run.policies.auto_search
    field = "algorithm.policies.auto_search"
    if run.autosearch_config_path:
        places.source(run.autosearch_config_path, CONFIG_PATH)
        if asked is not None and auto_search.asked(asked):
            raise wrong(faults.BAD_SEARCH, field, " and autosearch_config_path exclude each other.")
        _framework(run)
        return None if config is None else search_yaml.of(config, CONFIG_PATH, notes)
    if _framework(run):
        notes.append("algorithm.autosearch_framework_path has no effect: there is no autosearch_config_path")
    return auto_search.of(asked, merged, field) if asked is not None and auto_search.asked(asked) else None


def _framework(run: wire.JobAlgorithm) -> str:
    text = run.autosearch_framework_path
    return places.source(text, "algorithm.autosearch_framework_path") if text else ""


def _of_tasks(document: wire.Job, place: Place, notes: list[str]) -> _Whole:
    """Each task is a role; the first leads."""
    tasks = document.tasks or []
    if len(tasks) > MAX_TASKS:
        raise wrong(faults.BAD_PARAM, "tasks", f" has {len(tasks)} entries; {MAX_TASKS} are possible.")
    spec = document.spec or wire_spec.Spec()
    if spec.resource and (spec.resource.flavor_id or spec.resource.node_count):
        told = " and tasks exclude each other: each task has its task_resource."
        raise wrong(faults.BAD_PARAM, "spec.resource", told)
    usual_pool = (spec.resource and spec.resource.pool_id) or ""
    names = _role_names(tasks)
    made = _Whole({"tasks": []}, (), [], (), "", "")
    counts = (0, 0)
    for index, task in enumerate(tasks):
        made, counts = _with_task(made, task, names[index], index, counts, usual_pool, place, notes)
    if spec.resource:
        made.kept["resource"] = msgspec.to_builtins(spec.resource)
    if document.algorithm:
        notes.append("algorithm has no effect: each of the tasks has its own")
        made.kept["algorithm"] = msgspec.to_builtins(document.algorithm)
    return made


def _with_task(
    so_far: _Whole,
    task: wire.Task,
    name: str,
    index: int,
    counts: tuple[int, int],
    usual_pool: str,
    place: Place,
    notes: list[str],
) -> tuple[_Whole, tuple[int, int]]:
    field = f"tasks[{index}].algorithm"
    run = task.algorithm or wire.TaskAlgorithm()
    own = run.job_config or wire.TaskConfig()
    chosen = _task_flavor(task, usual_pool, index, place)
    if so_far.cluster and chosen.cluster != so_far.cluster:
        told = f": {shown(chosen.pool)} is on another cluster than the tasks before; a gang runs on one."
        raise wrong(faults.BAD_PARAM, f"tasks[{index}].task_resource.pool_id", told)
    asked_in = channels.several(run.inputs) or channels.several(own.inputs)
    asked_out = channels.several(run.outputs) or channels.several(own.outputs)
    wanted = program.Wanted(
        field,
        run,
        run.engine or own.engine,
        run.command or "",
        parameters.own(own.parameters, f"{field}.job_config.parameters"),
        channels.inputs(asked_in, place.settings, f"{field}.inputs", counts[0]),
        channels.outputs(asked_out, f"{field}.outputs", counts[1]),
        chosen.nodes,
        not chosen.pool,
        index,
    )
    made = program.make(wanted, place.settings, notes)
    flavor.check_fits(chosen, [], made.engine.ascend, f"tasks[{index}].task_resource")
    role = Role(name, made.program, chosen.nodes, chosen.resources, made.env, leads=not index)
    so_far.kept["tasks"].append(_kept_task(task, chosen, made, wanted, name))
    scratch = tuple(dict.fromkeys((*so_far.scratch, *made.scratch)))
    mounts = [*so_far.mounts, *(mount for mount in made.mounts if mount not in so_far.mounts)]
    whole = _Whole(so_far.kept, (*so_far.roles, role), mounts, scratch, chosen.cluster, chosen.pool)
    return whole, (counts[0] + len(asked_in), counts[1] + len(asked_out))


def _task_flavor(task: wire.Task, usual_pool: str, index: int, place: Place) -> flavor.Chosen:
    field = f"tasks[{index}].task_resource"
    asked = task.task_resource
    if asked is None or asked.node_count is None:
        raise wrong(faults.BAD_PARAM, f"{field}.node_count", " is missing.")
    resource = wire_spec.Resource(asked.flavor_id, asked.node_count, asked.pool_id or usual_pool)
    return flavor.choose(resource, place.settings, field)


def _role_names(tasks: list[wire.Task]) -> list[str]:
    names: list[str] = []
    for index, task in enumerate(tasks):
        spare = (f"{ROLE}{number or ''}" for number in range(len(tasks) + 1))
        said = {one.role for one in tasks}
        name = task.role or next(name for name in spare if name not in names and name not in said)
        field = f"tasks[{index}].role"
        if not _ROLE.fullmatch(name):
            told = f": {shown(name)} must have 1 to 32 letters, digits, `_` and `-`, a letter first."
            raise wrong(faults.BAD_PARAM, field, told)
        if name in names:
            raise wrong(faults.BAD_PARAM, field, f": {name} is the role of another task already.")
        names.append(name)
    return names


def _check_scratch(scratch: tuple[str, ...], mounts: list[Mount]) -> None:
    for own in scratch:
        for mount in mounts:
            if places.covers(own, mount.target) or places.covers(mount.target, own):
                told = f": {own} and {mount.target}, where {mount.source} is, must lie side by side."
                raise wrong(faults.BAD_LOCAL_CODE_DIR, "local_code_dir", told)


def _kept_algorithm(run: wire.JobAlgorithm, made: program.Made, wanted: program.Wanted) -> dict[str, Any]:
    kept = {key: value for key, value in msgspec.to_builtins(run).items() if value not in ("", [], {})}
    asked = run.policies and run.policies.auto_search
    policies = {"auto_search": auto_search.kept(asked)} if auto_search.asked(asked) else {}
    kept |= {"parameters": wanted.parameters, "engine": made.engine.kept, "policies": policies}
    environments = _environments(run, kept)
    first = {key: kept[key] for key in ("id", "name") if key in kept}
    return {**first, **kept, **_channels(wanted), **environments}


def _kept_task(
    task: wire.Task, chosen: flavor.Chosen, made: program.Made, wanted: program.Wanted, name: str
) -> dict[str, Any]:
    """Inputs and outputs are single objects, as the tables of the answer say; a list only where there are several."""
    algorithm = {
        key: value
        for key, value in msgspec.to_builtins(task.algorithm or wire.TaskAlgorithm()).items()
        if value not in ("", [], {})
    }
    if "job_config" in algorithm and "parameters" in algorithm["job_config"]:
        algorithm["job_config"]["parameters"] = wanted.parameters
    algorithm["engine"] = {
        **made.engine.kept,
        "run_user": "" if made.engine.user is None else str(made.engine.user),
        "v1_compatible": made.engine.v1,
    }
    single = {key: value[0] if len(value) == 1 else value for key, value in _channels(wanted).items()}
    environments = _environments(wanted.run, algorithm)
    kept: dict[str, Any] = {"role": name, "algorithm": {**algorithm, **single, **environments}}
    pool = {"pool_id": chosen.pool} if chosen.pool else {}
    listed = chosen.flavor.listed() if chosen.flavor.id else {}
    kept["task_resource"] = {**listed, "node_count": chosen.nodes, **pool}
    if task.log_export_path:
        kept["log_export_path"] = msgspec.to_builtins(task.log_export_path)
    return kept


def _channels(wanted: program.Wanted) -> dict[str, list[dict[str, Any]]]:
    both = {"inputs": wanted.inputs.kept, "outputs": wanted.outputs.kept}
    return {key: kept for key, kept in both.items() if kept}


def _environments(run: wire.Run, kept: dict[str, Any]) -> dict[str, Any]:
    """An object, whatever it was sent as; nothing if it is empty."""
    kept.pop("environments", None)
    found = program.environment(run.environments, "environments")
    return {"environments": found} if found else {}


def _kept(document: wire.Job, whole: _Whole, workspace: str, user: str) -> dict[str, Any]:
    metadata = {
        "name": document.metadata.name,
        "description": document.metadata.description or "",
        "workspace_id": workspace,
        "user_name": user,
    }
    more = msgspec.to_builtins(document.metadata)
    metadata |= {key: value for key, value in more.items() if key not in metadata and value}
    spec = msgspec.to_builtins(document.spec) if document.spec else {}
    spec.pop("resource", None)
    paths = spec.get("log_export_path") or {}
    spec["log_export_path"] = {key: value for key, value in paths.items() if value}
    parts = dict(whole.kept)
    if "resource" in parts:
        spec = {"resource": parts.pop("resource"), **spec}
    rest = {
        key: value
        for key, value in msgspec.to_builtins(document).items()
        if key in ("endpoints", "train_type", "ftjob_config")
    }
    return {"kind": document.kind, "metadata": metadata, **parts, "spec": spec, **rest}
