"""Checks in storage what a job reads and writes, before the job is created."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from turnout.dialects.modelarts import errors, locations
from turnout.dialects.modelarts.context import Context
from turnout.dialects.modelarts.errors import invalid
from turnout.dialects.modelarts.program import code
from turnout.errors import Denied, Invalid, NotFound, TimedOut
from turnout.job import Mount, NewJob
from turnout.service import Caller, unchecked_note

_FRAMEWORK = "algorithm.autosearch_framework_path"
_NOT_HUAWEIS = (
    "pip-requirements.txt has moxing: PyPI's package of that name has no mox.file and is not Huawei's. "
    "Remove it: the program has a module moxing without it"
)
_LOGS = "spec.log_export_path"


class _Run(NamedTuple):
    field: str
    """`algorithm`, or `tasks[0].algorithm`."""
    stored: Mapping[str, Any]


async def check(context: Context, caller: Caller, new: NewJob, stored: dict[str, Any]) -> NewJob:
    """Returns the job with notes about its sources. `stored`: its document.

    Raises Invalid if something that the job reads does not exist.
    """
    if not new.spec.mounts and new.spec.logs is None:
        return new
    runs = list(_runs(stored))
    results = await asyncio.gather(
        *(_check_code(context, caller, run) for run in runs),
        _check_mounts(context, caller, new, runs),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result
    notes = [note for result in results if isinstance(result, list) for note in result]
    return msgspec.structs.replace(new, notes=(*new.notes, *notes))


def _runs(document: dict[str, Any]) -> Iterator[_Run]:
    tasks = document.get("tasks", [])
    if not tasks:
        yield _Run("algorithm", document.get("algorithm", {}))
    for index, task in enumerate(tasks):
        yield _Run(f"tasks[{index}].algorithm", task["algorithm"])


async def _check_code(context: Context, caller: Caller, run: _Run) -> list[str]:
    """Returns notes."""
    code_dir = run.stored.get("code_dir", "")
    if not code_dir:
        return []
    try:
        found = await code.check(context, caller, code_dir, run.stored.get("boot_file", ""), run.field)
    except TimedOut as error:
        return [unchecked_note(code_dir, error.message, "it is looked for again before the job starts")]
    field = f"{run.field}.code_dir"
    if found and found.has_requirements and await code.requires_moxing(context, caller, code_dir, field):
        return [_NOT_HUAWEIS]
    return []


async def _check_mounts(context: Context, caller: Caller, new: NewJob, runs: list[_Run]) -> list[str]:
    """Checks all sources except code in buckets, which `_check_code` checks. Returns notes."""
    fields = {source: field for run in reversed(runs) for source, field in _fields(run)}
    code_dirs = {_source(run.stored["code_dir"]) for run in runs if run.stored.get("code_dir")}
    named = [
        (fields.get(mount.source, ""), mount)
        for mount in new.spec.mounts
        if mount.source.startswith("file:") or mount.source not in code_dirs or not mount.read_only
    ]
    if new.spec.logs:
        named.append((_LOGS, Mount(new.spec.logs.to, "", output=True)))
    try:
        return await context.sources.check(caller.project, named)
    except NotFound as error:
        raise _missing(error) from None
    except Invalid as error:
        field = error.field.replace(".boot_file", ".code_dir")
        raise Invalid(error.message, field=field, code=error.code or errors.BAD_OBS_PATH) from None
    except Denied as error:
        raise Invalid(f"{error.message}.", field=error.field, code=errors.OBS_DENIED) from None


def _fields(run: _Run) -> Iterator[tuple[str, str]]:
    """The sources that the job reads, each with the name of its field."""
    if run.stored.get("autosearch_framework_path"):
        yield _source(run.stored["autosearch_framework_path"]), _FRAMEWORK
    if run.stored.get("code_dir"):
        yield _source(run.stored["code_dir"]), f"{run.field}.boot_file"
    for channels in ((run.stored.get("job_config") or {}).get("inputs"), run.stored.get("inputs")):
        for index, channel in enumerate(channels if isinstance(channels, list) else [channels or {}]):
            for kind, remote in (channel.get("remote") or {}).items():
                if remote and remote.get("obs_url"):
                    yield _source(remote["obs_url"]), f"{run.field}.inputs[{index}].remote.{kind}.obs_url"


def _source(url: str) -> str:
    return locations.source(url, "obs_url")


def _missing(error: NotFound) -> Invalid:
    if error.field.endswith(".boot_file"):
        code = errors.BAD_BOOT_FILE
    elif ".dataset." in error.field:
        code = errors.NO_SUCH_DATASET
    else:
        code = errors.BAD_OBS_PATH
    return invalid(code, error.field, f": {error.message}; upload it first.")
