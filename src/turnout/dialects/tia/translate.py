"""Translates TI-A's requests to jobs, queries and log ranges; `render` is the reverse."""

import base64
import binascii
import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

import msgspec

from turnout import config
from turnout.dialects.tia import catalogue, machine_type, mounts, spark, wire
from turnout.dialects.tia.catalogue import CUSTOM, CatalogueRuntime, RuntimeFamily, Tier
from turnout.errors import Invalid
from turnout.job import Compare, Mount, NewJob, Page, Program, Query, Resources, Role, Spec, WhenLeadSucceeds
from turnout.runtimes import runtime_table
from turnout.service.images import ImageRules

DIALECT = "tia"
MAX_NAME = 128
MAX_REPLICAS = 1000
MAX_WORDS = 8000
"""bubblewrap accepts at most 9000 words, including its own options."""
MAX_WORD = (128 << 10) - 1
MAX_COMMAND_LINE = 3 << 19
"""The kernel accepts 2 MiB of arguments and environment; a quarter is reserved for the environment."""
MAX_LIST = 100
DEFAULT_LIST = 20
MAX_LOG_PAGE = 1000
MAX_LOG_LINES = 10_000

CHINA = timezone(timedelta(hours=8))
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_encode = msgspec.json.Encoder().encode


class LogRange(NamedTuple):
    start: int
    end: int
    limit: int
    cursor: str
    lines_before: int
    """The number of lines on the previous pages."""


def scope(cluster: str) -> str:
    return f"{DIALECT}:{cluster}"


def new_job(
    request: wire.CreateJob,
    project: str,
    runtimes: Mapping[str, config.RuntimeSettings],
    images: ImageRules | None = None,
) -> NewJob:
    """Checks everything except the sources of mounts, which `storage` checks."""
    if len(request.name) > MAX_NAME or not _NAME.fullmatch(request.name):
        raise Invalid(
            f"Name: {request.name[:MAX_NAME]!r} must be lower-case letters, digits, '.' and '-', begin with a letter "
            f"or digit, and have at most {MAX_NAME} characters.",
            field="Name",
        )
    runtime = _runtime(request.runtime_version, runtimes)
    tier = _tier(request, runtime.family)
    notes: list[str] = []
    rules = images or ImageRules(runtimes=runtimes)
    program = rules.settle(_program(request, runtime), project, request.cluster, {})
    spec = _spec(request, runtime, program, tier, runtimes, notes)
    return NewJob(
        project=project,
        dialect=DIALECT,
        scope=scope(request.cluster),
        handle=request.name,
        name=request.name,
        cluster=request.cluster,
        spec=spec,
        document=_encode(request),
        notes=tuple(notes),
    )


def list_query(request: wire.ListJobs) -> tuple[Query, Page]:
    limit = DEFAULT_LIST if request.limit is None else request.limit
    if not 1 <= limit <= MAX_LIST:
        raise Invalid(f"Limit must be from 1 to {MAX_LIST}, not {limit}.", field="Limit")
    return Compare("scope", "=", scope(request.cluster)), Page(limit, request.offset or 0)


def log_range(request: wire.QueryLogs) -> LogRange:
    start, end = _time(request.start_time, "StartTime"), _time(request.end_time, "EndTime")
    if end < start:
        raise Invalid("EndTime must not be before StartTime.", field="EndTime")
    if not 1 <= request.limit <= MAX_LOG_PAGE:
        raise Invalid(f"Limit must be from 1 to {MAX_LOG_PAGE}, not {request.limit}.", field="Limit")
    lines_before, cursor = _open_context(request.context or "")
    if lines_before >= MAX_LOG_LINES:
        raise Invalid(
            f"Context covers at most {MAX_LOG_LINES} lines; continue without it from the time of the last line.",
            field="Context",
        )
    limit = min(request.limit, MAX_LOG_LINES - lines_before)
    return LogRange(start, end // 1_000_000_000 * 1_000_000_000 + 999_999_999, limit, cursor, lines_before)


def context(lines_before: int, cursor: str) -> str:
    return base64.urlsafe_b64encode(f"{lines_before}:{cursor}".encode()).decode()


def _open_context(text: str) -> tuple[int, str]:
    if not text:
        return 0, ""
    try:
        lines_before, separator, cursor = base64.b64decode(text, b"-_", validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        lines_before, separator, cursor = "", "", ""
    known = separator and re.fullmatch(r"[0-9]{1,9}", lines_before)
    if not known or context(int(lines_before), cursor) != text:
        raise Invalid(
            "Context must be empty or exactly the Context of the previous response.",
            field="Context",
        )
    return int(lines_before), cursor


def _time(text: str, field: str) -> int:
    """A time without a zone is in China's zone."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Invalid(f"{field}: {text!r} must be a time such as 2018-05-23 10:00:00.", field=field) from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=CHINA)
    try:
        seconds = int(at.replace(microsecond=0).timestamp())
    except (OverflowError, ValueError):
        raise Invalid(f"{field}: {text!r} is out of range.", field=field) from None
    return seconds * 1_000_000_000 + at.microsecond * 1000


def _runtime(name: str, settings: Mapping[str, config.RuntimeSettings]) -> CatalogueRuntime:
    """A runtime of the catalogue or of the settings."""
    runtime = catalogue.runtimes().get(name)
    if runtime is None and name in settings:
        return CatalogueRuntime(name, RuntimeFamily(cos=True), "")
    if runtime is None:
        known = [*catalogue.runtimes(), *settings]
        name = name[:100]
        close = difflib.get_close_matches(name, known, 3)
        hint = (
            f"did you mean {', '.join(close)}?" if close else "use one such as tf-1.4.0 or tia-1.8.0-gpu-py3."
        )
        raise Invalid(
            f"RuntimeVersion: {name!r} is not a runtime; {hint} "
            f"Declare your own in the settings as {runtime_table(name)}.",
            field="RuntimeVersion",
        )
    if runtime.family.not_for_jobs:
        raise Invalid(
            f"RuntimeVersion: {name} does not run jobs, {runtime.family.not_for_jobs}; use one such as tia-1.7.0.",
            field="RuntimeVersion",
        )
    return runtime


def _tier(request: wire.JobFields, family: RuntimeFamily) -> Tier:
    """The machines of the preset. Without a preset (CUSTOM, or no tier), those of the request's fields."""
    name = (request.scale_tier or "").upper()
    explicit = [field for field, value in _explicit_sizes(request) if value]
    if not family.ps:
        _refuse_ps(request, explicit)
    if name in ("", CUSTOM):
        _check_counts(request)
        return Tier(
            master=request.master_type or "",
            worker=request.worker_type or "",
            workers=request.worker_count or 0,
            ps=request.parameter_server_type or "",
            ps_count=request.parameter_server_count or 0,
        )
    tier = catalogue.tiers().get(name)
    if tier is None:
        known = ", ".join([*catalogue.tiers(), CUSTOM])
        raise Invalid(
            f"ScaleTier: {request.scale_tier!r} is not a scale tier; use one of {known}.", field="ScaleTier"
        )
    if explicit:
        raise Invalid(
            f"{explicit[0]} can be set with ScaleTier {CUSTOM} only: {name} has its own machines and counts.",
            field=explicit[0],
        )
    return tier


def _explicit_sizes(request: wire.JobFields) -> Sequence[tuple[str, object]]:
    return (
        ("MasterType", request.master_type),
        ("WorkerType", request.worker_type),
        ("ParameterServerType", request.parameter_server_type),
        ("WorkerCount", request.worker_count),
        ("ParameterServerCount", request.parameter_server_count),
    )


def _refuse_ps(request: wire.JobFields, explicit: list[str]) -> None:
    for field in ("ParameterServerType", "ParameterServerCount"):
        if field in explicit:
            raise Invalid(f"{field}: {request.runtime_version} has no parameter servers.", field=field)


def _check_counts(request: wire.JobFields) -> None:
    for field, count in (
        ("WorkerCount", request.worker_count),
        ("ParameterServerCount", request.parameter_server_count),
    ):
        if count and count > MAX_REPLICAS:
            raise Invalid(f"{field} must be at most {MAX_REPLICAS}, not {count}.", field=field)


def _spec(
    request: wire.CreateJob,
    runtime: CatalogueRuntime,
    program: Program,
    tier: Tier,
    settings: Mapping[str, config.RuntimeSettings],
    notes: list[str],
) -> Spec:
    mounted = _mounts(request, runtime)
    if runtime.family.spark:
        roles = spark.roles(request, program, tier, notes)
    else:
        lead_task = settings[runtime.name].lead_task if runtime.name in settings else "chief"
        roles = _roles(program, runtime.family, tier, lead_task, notes)
        if request.runtime_conf:
            spark.read_conf(request.runtime_conf)
            notes.append(f"RuntimeConf has no effect: {runtime.name} is not a Spark runtime")
    working_dir = mounted[0].target if mounted else ""
    return Spec(roles=roles, mounts=mounted, working_dir=working_dir, debug=bool(request.debug))


def _mounts(request: wire.JobFields, runtime: CatalogueRuntime) -> tuple[Mount, ...]:
    parsed = mounts.parse_all(request.package_dir)
    if not runtime.family.cos and any(mount.source.startswith("cos://") for mount in parsed):
        raise Invalid(
            f"PackageDir: {runtime.name} cannot mount cos://; a tia runtime such as tia-1.7.0 can.",
            field="PackageDir",
        )
    return parsed


def _program(request: wire.JobFields, runtime: CatalogueRuntime) -> Program:
    """Args alone are the command line, as in an image without an entry point. A list of one empty string is empty."""
    command: tuple[str, ...] = () if request.command == [""] else tuple(request.command or ())
    args: tuple[str, ...] = () if request.args == [""] else tuple(request.args or ())
    _check_words(command, "Command")
    _check_words(args, "Args")
    words = command + args
    if not words:
        raise Invalid("Command is missing: there is nothing to run.", field="Command")
    if not words[0]:
        field = "Command.0" if command else "Args.0"
        raise Invalid(f"{field} is empty: it names the program to run.", field=field)
    if len(words) > MAX_WORDS:
        raise Invalid(
            f"Command and Args have {len(words)} words; at most {MAX_WORDS} are allowed.", field="Args"
        )
    if sum(len(word.encode()) + 9 for word in words) > MAX_COMMAND_LINE:
        raise Invalid(f"Command and Args are larger than {MAX_COMMAND_LINE} bytes together.", field="Args")
    return Program(command=command, args=args, runtime=runtime.name, wants=runtime.wants)


def _check_words(words: tuple[str, ...], field: str) -> None:
    for index, word in enumerate(words):
        if len(word) > MAX_WORD or len(word.encode()) > MAX_WORD:
            raise Invalid(f"{field}.{index} is longer than {MAX_WORD} bytes.", field=f"{field}.{index}")
        if "\0" in word:
            raise Invalid(f"{field}.{index} has a NUL character.", field=f"{field}.{index}")


def _roles(
    program: Program, family: RuntimeFamily, tier: Tier, lead_task: str, notes: list[str]
) -> tuple[Role, ...]:
    """The master leads. In a family without one, worker 0 leads. All roles run the same program."""

    def resources(text: str, field: str) -> Resources:
        parsed = machine_type.parse(text, field)
        if parsed.gpus >= family.min_gpus:
            return parsed
        return Resources(millicores=parsed.millicores, memory=parsed.memory, gpus=family.min_gpus)

    if not family.master and not tier.master:
        worker = resources(tier.worker, "WorkerType")
        lead = Role("worker", program, tier.workers or 1, worker, leads=True, machine=tier.worker)
        return (lead,)
    master = resources(tier.master, "MasterType")
    lead = Role("master", program, resources=master, leads=True, task_type=lead_task, machine=tier.master)
    roles = [lead]
    if tier.worker or tier.workers:
        worker = resources(tier.worker, "WorkerType")
        if tier.workers:
            roles.append(Role("worker", program, tier.workers, worker, machine=tier.worker))
        else:
            notes.append("WorkerType has no effect without WorkerCount")
    if family.ps and (tier.ps or tier.ps_count):
        ps = resources(tier.ps, "ParameterServerType")
        if tier.ps_count:
            end = WhenLeadSucceeds.END
            server = Role("ps", program, tier.ps_count, ps, when_lead_succeeds=end, machine=tier.ps)
            roles.append(server)
        else:
            notes.append("ParameterServerType has no effect without ParameterServerCount")
    return tuple(roles)
