"""Builds the program of a role from a job or a task: code, engine, options, environment variables."""

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

from turnout.dialects.modelarts import errors, locations, wire
from turnout.dialects.modelarts.catalogue import engine
from turnout.dialects.modelarts.errors import invalid, quoted
from turnout.dialects.modelarts.jobs import channels, parameters
from turnout.dialects.modelarts.program import script
from turnout.job import Mount, Program

MAX_ENVIRONMENTS = 100
MAX_KEY = 8192
MAX_ENVIRONMENT = 4096
MAX_COMMAND = 64 << 10
MAX_WORDS = 7000
MAX_BYTES = 1 << 20
"""The kernel's limit for arguments and environment is 2 MiB."""

TRIAL = "TURNOUT_TRIAL"
"""The environment variable that the module `autosearch` reads."""

FORBIDDEN_CODE_DIRS = tuple(
    f"{locations.HOME}/{name}" for name in ("modelarts", "modelarts-dev", "infer", ".turnout")
)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TrialInputs(NamedTuple):
    """The additional inputs of a trial, if a configuration file defines the search."""

    framework: str = ""
    """The mount source of the framework's code."""
    values: str = "{}"
    """The trial's values, as a JSON object."""


class ProgramRequest(NamedTuple):
    """The parts of the document that define the program of one role."""

    field: str
    """`algorithm`, or `tasks[0].algorithm`."""
    run: wire.Run
    engine: wire.Engine | None
    command: str
    parameters: list[dict[str, Any]]
    inputs: channels.Channels
    outputs: channels.Channels
    nodes: int
    public: bool
    number: int = 0
    """The number of the task: each has its own directory for code."""
    trial_inputs: TrialInputs | None = None
    failure: str = ""
    """The message with which the job fails as soon as it starts. Empty for a job that can run."""


class BuiltProgram(NamedTuple):
    program: Program
    env: dict[str, str]
    mounts: list[Mount]
    scratch: tuple[str, ...]
    engine: engine.ResolvedEngine


class _Code(NamedTuple):
    start: script.Start
    mounts: tuple[Mount, ...] = ()
    scratch: tuple[str, ...] = ()


def build_program(request: ProgramRequest, notes: list[str]) -> BuiltProgram:
    run, field = request.run, request.field
    resolved = _engine(request)
    engine.check_user(resolved.user, request.public, f"{field}.engine")
    code = _code(request, resolved, notes)
    environments = environment(run.environments, f"{field}.environments")
    options, env = _arguments(request)
    notes += [
        f"{field}.environments.{name} replaces the variable of the parameter, input or output of that name"
        for name in environments
        if name in env
    ]
    env |= environments
    _check_size(options, env, field)
    start = code.start._replace(
        command=request.command,
        options=options,
        family=resolved.family,
        nodes=request.nodes,
        failure=request.failure,
    )
    mounts = [*code.mounts, *request.inputs.mounts, *request.outputs.mounts]
    if request.trial_inputs:
        start, env = _add_trial_inputs(start, env, request.trial_inputs, mounts)
    argv = script.command(start)
    program = Program(
        command=argv,
        runtime=resolved.runtime,
        wants=resolved.wants,
        user=resolved.user,
        image=resolved.image,
    )
    return BuiltProgram(program, env, mounts, code.scratch, resolved)


def environment(requested: dict[str, str] | list[dict[str, str]] | None, field: str) -> dict[str, str]:
    """Accepts an object, and the list of objects that the reference's table has."""
    parts = requested if isinstance(requested, list) else [requested or {}]
    found = {name: value for part in parts for name, value in part.items()}
    if len(found) > MAX_ENVIRONMENTS:
        detail = f" has {len(found)} variables; at most {MAX_ENVIRONMENTS} are allowed."
        raise invalid(errors.INVALID, field, detail)
    for name, value in found.items():
        if not _VARIABLE.fullmatch(name) or len(name) > MAX_KEY:
            detail = f": {quoted(name)} must have letters, digits and `_`, and not begin with a digit."
            raise invalid(errors.INVALID, field, detail)
        if len(value) > MAX_ENVIRONMENT or "\0" in value:
            detail = f" must have at most {MAX_ENVIRONMENT} characters, and no NUL."
            raise invalid(errors.INVALID, f"{field}.{name}", detail)
    return found


def check_boot_file(code_dir: str, boot_file: str, preset: bool, field: str) -> tuple[str, str]:
    """Returns the source of the code, and the boot file's path in it."""
    source = locations.source(code_dir, f"{field}.code_dir", errors.BAD_CODE_DIR)
    boot = locations.source(boot_file, f"{field}.boot_file", errors.BAD_BOOT_FILE)
    if not boot.startswith(f"{source}/"):
        detail = f": {quoted(boot_file)} must be inside code_dir, {quoted(code_dir)}."
        raise invalid(errors.BOOT_FILE_OUTSIDE, f"{field}.boot_file", detail)
    if preset and not boot.endswith(".py"):
        detail = f": {quoted(boot_file)} must be a .py file: the engine's Python runs it."
        raise invalid(errors.BAD_BOOT_FILE, f"{field}.boot_file", detail)
    return source, boot[len(source) + 1 :]


def check_start(
    engine_: engine.ResolvedEngine, code_dir: str, boot_file: str, command: str, field: str
) -> None:
    """Raises Invalid unless there is exactly one way to start the program."""
    if len(command) > MAX_COMMAND or "\0" in command:
        detail = f" must have at most {MAX_COMMAND} characters, and no NUL."
        raise invalid(errors.INVALID, f"{field}.command", detail)
    if engine_.image:
        if command or (engine_.preset and boot_file and code_dir):
            return
        detail = f" is missing: this service does not know the entry point of the image {engine_.image}."
        raise invalid(errors.NO_COMMAND, f"{field}.command", detail)
    if command and boot_file:
        detail = " cannot be used with boot_file and a preset engine: set one of the two."
        raise invalid(errors.INVALID, f"{field}.command", detail)
    if command:
        return
    if not code_dir:
        raise invalid(errors.BAD_CODE_DIR, f"{field}.code_dir", " is missing.")
    if not boot_file:
        raise invalid(errors.BAD_BOOT_FILE, f"{field}.boot_file", " is missing: code_dir needs it.")


def _engine(request: ProgramRequest) -> engine.ResolvedEngine:
    field, requested = request.field, request.engine or wire.Engine()
    if request.command and not (requested.engine_id or requested.engine_name or requested.image_url):
        detail = " is missing: a command needs a custom image or a preset engine."
        raise invalid(errors.NO_COMMAND, f"{field}.engine.image_url", detail)
    if not request.run.code_dir and not request.run.boot_file and request.engine is None:
        detail = " is missing: set algorithm.id, subscription_id, code_dir with boot_file, or command with an image."
        raise invalid(errors.INVALID, field, detail)
    resolved = engine.resolve(requested, f"{field}.engine")
    check_start(resolved, request.run.code_dir or "", request.run.boot_file or "", request.command, field)
    return resolved


def _code(request: ProgramRequest, resolved: engine.ResolvedEngine, notes: list[str]) -> _Code:
    run, field = request.run, request.field
    parent, working_dir = _directories(run, resolved, field, notes)
    if not run.code_dir:
        return _Code(script.Start(working_dir=working_dir))
    if request.command:
        source, inside = locations.source(run.code_dir, f"{field}.code_dir", errors.BAD_CODE_DIR), ""
    else:
        source, inside = check_boot_file(run.code_dir, run.boot_file or "", not resolved.image, field)
    files = (inside,) if inside else ()
    if source.startswith("file://"):
        folder = locations.mount_point(source[len("file://") :], f"{field}.code_dir", errors.BAD_CODE_DIR)
        mount, scratch, code = Mount(source, folder, read_only=True, files=files), (), ""
    else:
        folder = f"{parent}/{source.rpartition('/')[2]}"
        code = locations.CODE if not request.number else f"{locations.CODE}-{request.number}"
        mount = Mount(source, code, read_only=True, files=files)
        scratch = () if locations.covers(locations.HOME, parent) else (parent,)
    boot = f"{folder}/{inside}" if inside else ""
    return _Code(script.Start(code, folder, boot, working_dir=working_dir), (mount,), scratch)


def _arguments(request: ProgramRequest) -> tuple[tuple[str, ...], dict[str, str]]:
    """Options for a boot file, and environment variables. A command gets all as variables."""
    of_channels = [*request.inputs.arguments, *request.outputs.arguments]
    values = parameters.arguments(request.parameters)
    by_option = [(name, path) for name, path, is_variable in of_channels if not is_variable] + values
    by_variable = [(name, path) for name, path, is_variable in of_channels if is_variable]
    if request.command:
        by_option, by_variable = [], by_variable + by_option
    env: dict[str, str] = {}
    names: dict[str, str] = {}
    for name, value in by_variable:
        variable = channels.variable(name)
        if variable in names:
            detail = f": {names[variable]} and {name} would both be the environment variable {variable}; rename one."
            is_parameter = any(name == parameter["name"] for parameter in request.parameters)
            code = errors.DUPLICATE_NAME if is_parameter else errors.BAD_CHANNEL
            raise invalid(code, f"{request.field}.{'parameters' if is_parameter else 'inputs'}", detail)
        env[variable], names[variable] = value, name
    return tuple(f"--{name}={value}" for name, value in by_option), env


def _add_trial_inputs(
    start: script.Start, env: dict[str, str], trial_inputs: TrialInputs, mounts: list[Mount]
) -> tuple[script.Start, dict[str, str]]:
    start = start._replace(autosearch=_autosearch_module())
    if trial_inputs.framework:
        mounts.append(Mount(trial_inputs.framework, locations.FRAMEWORK, read_only=True))
        start = start._replace(framework=locations.FRAMEWORK)
    return start, env | {TRIAL: trial_inputs.values}


@lru_cache(maxsize=1)
def _autosearch_module() -> str:
    return resources.files("turnout.dialects.modelarts.search").joinpath("autosearch.py").read_text()


def _directories(
    run: wire.Run, resolved: engine.ResolvedEngine, field: str, notes: list[str]
) -> tuple[str, str]:
    """The directory in which the code folder is created, and the program's working directory."""
    parent, working_dir = locations.JOB_DIR, ""
    if run.local_code_dir:
        parent = _local_code_dir(run.local_code_dir, f"{field}.local_code_dir")
    if run.working_dir:
        working_dir = locations.path(run.working_dir, f"{field}.working_dir", errors.BAD_WORKING_DIR)
    if not resolved.v1 or not (run.local_code_dir or run.working_dir):
        return parent, working_dir
    notes.append(f"{resolved.runtime} is a v1 engine: local_code_dir and working_dir have no effect")
    return locations.JOB_DIR, ""


def _local_code_dir(text: str, field: str) -> str:
    parent = locations.path(text, field, errors.BAD_LOCAL_CODE_DIR)
    if not parent.startswith("/home/") or parent == locations.HOME:
        detail = f": {quoted(text)} must be below /home, and must not be {locations.HOME} itself."
        raise invalid(errors.BAD_LOCAL_CODE_DIR, field, detail)
    if parent != locations.JOB_DIR and any(locations.covers(own, parent) for own in FORBIDDEN_CODE_DIRS):
        detail = f": {quoted(text)} must not be in {', '.join(FORBIDDEN_CODE_DIRS)}, which the platform uses."
        raise invalid(errors.BAD_LOCAL_CODE_DIR, field, detail)
    return parent


def _check_size(options: Sequence[str], env: dict[str, str], field: str) -> None:
    size = sum(len(word.encode()) + 9 for word in options)
    size += sum(len(name.encode()) + len(value.encode()) + 10 for name, value in env.items())
    if len(options) > MAX_WORDS or size > MAX_BYTES:
        detail = f" and environments together must have at most {MAX_BYTES} bytes and {MAX_WORDS} values."
        raise invalid(errors.INVALID, f"{field}.parameters", detail)
