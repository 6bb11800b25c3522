"""From what a job or a task says to the program of a role: code, engine, options, variables."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from turnout import config
from turnout.dialects.modelarts import channels, engine, faults, parameters, places, script, wire
from turnout.dialects.modelarts.faults import shown, wrong
from turnout.job import Mount, Program

MAX_ENVIRONMENTS = 100
MAX_KEY = 8192
MAX_ENVIRONMENT = 4096
MAX_COMMAND = 64 << 10
MAX_WORDS = 7000
MAX_BYTES = 1 << 20
"""The kernel takes 2 MiB of words and environment."""

TRIAL = "TURNOUT_TRIAL"
"""The variable that the module `autosearch` reads."""

FORBIDDEN_CODE_DIRS = tuple(
    f"{places.HOME}/{name}" for name in ("modelarts", "modelarts-dev", "infer", ".turnout")
)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Searched(NamedTuple):
    """What a program of a search by configuration file is given besides."""

    framework: str = ""
    """Where the framework's code is, as a source of a mount."""
    values: str = "{}"
    """What this trial tries, as a JSON object."""


class Wanted(NamedTuple):
    """What one role is to run, wherever in the document it was said."""

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
    """Of the task: each has a place of its own for its code."""
    searched: Searched | None = None


class Made(NamedTuple):
    program: Program
    env: dict[str, str]
    mounts: list[Mount]
    scratch: tuple[str, ...]
    engine: engine.Chosen


class _Code(NamedTuple):
    start: script.Start
    mounts: tuple[Mount, ...] = ()
    scratch: tuple[str, ...] = ()


def make(wanted: Wanted, settings: config.Settings, notes: list[str]) -> Made:
    run, field = wanted.run, wanted.field
    chosen = _engine(wanted, settings)
    engine.check_user(chosen.user, wanted.public, f"{field}.engine")
    code = _code(wanted, chosen, notes)
    environments = environment(run.environments, f"{field}.environments")
    told = [*wanted.inputs.told, *wanted.outputs.told]
    values = parameters.values(wanted.parameters)
    by_option = [(name, path) for name, path, by_variable in told if not by_variable] + values
    env = {name: path for name, path, by_variable in told if by_variable}
    options: tuple[str, ...] = ()
    if wanted.command:
        env |= {name: value for name, value in by_option if _VARIABLE.fullmatch(name)}
    else:
        options = tuple(f"--{name}={value}" for name, value in by_option)
    env |= environments
    _check_size(options, env, field)
    start = code.start._replace(
        command=wanted.command, options=options, family=chosen.family, nodes=wanted.nodes
    )
    mounts = [*code.mounts, *wanted.inputs.mounts, *wanted.outputs.mounts]
    if wanted.searched:
        start, env = _with_search(start, env, wanted.searched, mounts)
    if chosen.image and chosen.image not in settings.images:
        notes.append(f"the image {chosen.image} is not known here: its command runs on this machine as it is")
    argv = script.command(start)
    program = Program(command=argv, runtime=chosen.runtime, wants=chosen.wants, user=chosen.user)
    return Made(program, env, mounts, code.scratch, chosen)


def environment(asked: dict[str, str] | list[dict[str, str]] | None, field: str) -> dict[str, str]:
    """An object, or the list of objects that the seed's table has."""
    parts = asked if isinstance(asked, list) else [asked or {}]
    found = {name: value for part in parts for name, value in part.items()}
    if len(found) > MAX_ENVIRONMENTS:
        told = f" has {len(found)} variables; {MAX_ENVIRONMENTS} are possible."
        raise wrong(faults.BAD_PARAM, field, told)
    for name, value in found.items():
        if not _VARIABLE.fullmatch(name) or len(name) > MAX_KEY:
            told = f": {shown(name)} must have letters, digits and `_`, and not begin with a digit."
            raise wrong(faults.BAD_PARAM, field, told)
        if len(value) > MAX_ENVIRONMENT or "\0" in value:
            told = f" must have at most {MAX_ENVIRONMENT} characters, and no NUL."
            raise wrong(faults.BAD_PARAM, f"{field}.{name}", told)
    return found


def check_boot_file(code_dir: str, boot_file: str, preset: bool, field: str) -> tuple[str, str]:
    """The source of the code, and the boot file's path in it."""
    source = places.source(code_dir, f"{field}.code_dir", faults.BAD_CODE_DIR)
    boot = places.source(boot_file, f"{field}.boot_file", faults.BAD_BOOT_FILE)
    if not boot.startswith(f"{source}/"):
        told = f": {shown(boot_file)} must be inside code_dir, {shown(code_dir)}."
        raise wrong(faults.BOOT_FILE_OUTSIDE, f"{field}.boot_file", told)
    if preset and not boot.endswith(".py"):
        told = f": {shown(boot_file)} must be a .py file: the engine's Python runs it."
        raise wrong(faults.BAD_BOOT_FILE, f"{field}.boot_file", told)
    return source, boot[len(source) + 1 :]


def check_start(engine_: engine.Chosen, code_dir: str, boot_file: str, command: str, field: str) -> None:
    """Exactly one way to start it."""
    if len(command) > MAX_COMMAND or "\0" in command:
        told = f" must have at most {MAX_COMMAND} characters, and no NUL."
        raise wrong(faults.BAD_PARAM, f"{field}.command", told)
    if engine_.image:
        if command or (engine_.preset and boot_file and code_dir):
            return
        told = f" is missing: what the image {engine_.image} starts by itself is not known here."
        raise wrong(faults.NO_COMMAND, f"{field}.command", told)
    if command and boot_file:
        told = " and boot_file exclude each other with a preset engine: say one of them."
        raise wrong(faults.BAD_PARAM, f"{field}.command", told)
    if command:
        return
    if not code_dir:
        raise wrong(faults.BAD_CODE_DIR, f"{field}.code_dir", " is missing.")
    if not boot_file:
        raise wrong(faults.BAD_BOOT_FILE, f"{field}.boot_file", " is missing: it goes with code_dir.")


def _engine(wanted: Wanted, settings: config.Settings) -> engine.Chosen:
    field, asked = wanted.field, wanted.engine or wire.Engine()
    if wanted.command and not (asked.engine_id or asked.engine_name or asked.image_url):
        told = " is missing: a command runs in a custom image, or in that of a preset engine."
        raise wrong(faults.NO_COMMAND, f"{field}.engine.image_url", told)
    if not wanted.run.code_dir and not wanted.run.boot_file and wanted.engine is None:
        told = " is missing: say algorithm.id, subscription_id, code_dir with boot_file, or a command in an image."
        raise wrong(faults.BAD_PARAM, field, told)
    chosen = engine.choose(asked, settings, f"{field}.engine")
    check_start(chosen, wanted.run.code_dir or "", wanted.run.boot_file or "", wanted.command, field)
    return chosen


def _code(wanted: Wanted, chosen: engine.Chosen, notes: list[str]) -> _Code:
    run, field = wanted.run, wanted.field
    parent, working_dir = _directories(run, chosen, field, notes)
    if not run.code_dir:
        return _Code(script.Start(working_dir=working_dir))
    if wanted.command:
        source, inside = places.source(run.code_dir, f"{field}.code_dir", faults.BAD_CODE_DIR), ""
    else:
        source, inside = check_boot_file(run.code_dir, run.boot_file or "", not chosen.image, field)
    if source.startswith("file://"):
        folder = places.mount_point(source[len("file://") :], f"{field}.code_dir", faults.BAD_CODE_DIR)
        mount, scratch, code = Mount(source, folder, read_only=True), (), ""
    else:
        folder = f"{parent}/{source.rpartition('/')[2]}"
        code = places.CODE if not wanted.number else f"{places.CODE}-{wanted.number}"
        mount = Mount(source, code, read_only=True)
        scratch = () if places.covers(places.HOME, parent) else (parent,)
    boot = f"{folder}/{inside}" if inside else ""
    return _Code(script.Start(code, folder, boot, working_dir=working_dir), (mount,), scratch)


def _with_search(
    start: script.Start, env: dict[str, str], searched: Searched, mounts: list[Mount]
) -> tuple[script.Start, dict[str, str]]:
    start = start._replace(autosearch=_module())
    if searched.framework:
        mounts.append(Mount(searched.framework, places.FRAMEWORK, read_only=True))
        start = start._replace(framework=places.FRAMEWORK)
    return start, env | {TRIAL: searched.values}


@lru_cache(maxsize=1)
def _module() -> str:
    return Path(__file__).with_name("autosearch.py").read_text()


def _directories(run: wire.Run, chosen: engine.Chosen, field: str, notes: list[str]) -> tuple[str, str]:
    """Where the code folder is made, and where the program starts."""
    parent, working_dir = places.JOB_DIR, ""
    if run.local_code_dir:
        parent = _local_code_dir(run.local_code_dir, f"{field}.local_code_dir")
    if run.working_dir:
        working_dir = places.path(run.working_dir, f"{field}.working_dir", faults.BAD_WORKING_DIR)
    if not chosen.v1 or not (run.local_code_dir or run.working_dir):
        return parent, working_dir
    notes.append(f"{chosen.runtime} is a v1 engine: local_code_dir and working_dir have no effect")
    return places.JOB_DIR, ""


def _local_code_dir(text: str, field: str) -> str:
    parent = places.path(text, field, faults.BAD_LOCAL_CODE_DIR)
    if not parent.startswith("/home/") or parent == places.HOME:
        told = f": {shown(text)} must be below /home, and not {places.HOME} itself."
        raise wrong(faults.BAD_LOCAL_CODE_DIR, field, told)
    if any(places.covers(own, parent) for own in FORBIDDEN_CODE_DIRS):
        told = f": {shown(text)} must not be in {', '.join(FORBIDDEN_CODE_DIRS)}, which the platform uses."
        raise wrong(faults.BAD_LOCAL_CODE_DIR, field, told)
    return parent


def _check_size(options: Sequence[str], env: dict[str, str], field: str) -> None:
    size = sum(len(word.encode()) + 9 for word in options)
    size += sum(len(name.encode()) + len(value.encode()) + 10 for name, value in env.items())
    if len(options) > MAX_WORDS or size > MAX_BYTES:
        told = f" and environments are larger than {MAX_BYTES} bytes or {MAX_WORDS} values together."
        raise wrong(faults.BAD_PARAM, f"{field}.parameters", told)
