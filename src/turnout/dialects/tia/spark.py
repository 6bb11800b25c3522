"""Spark jobs: one driver runs `spark-submit` in local mode, and the executors are threads of the driver."""

from collections.abc import Sequence

from turnout.dialects.tia import machine_type, wire
from turnout.dialects.tia.catalogue import CUSTOM, Tier
from turnout.errors import Invalid
from turnout.job import Program, Resources, Role
from turnout.job.resources import CORE

SUBMIT = "spark-submit"


def roles(request: wire.JobFields, program: Program, tier: Tier, notes: list[str]) -> tuple[Role, ...]:
    """Workers are executors and the master is the driver; parameter servers are ignored."""
    name = (request.scale_tier or "").upper()
    if name not in ("", CUSTOM) and not name.endswith("_DIST"):
        raise Invalid(
            f"ScaleTier: {request.runtime_version} runs on a _DIST tier or {CUSTOM}, not {request.scale_tier}.",
            field="ScaleTier",
        )
    driver = machine_type.parse(tier.master, "MasterType")
    executor = machine_type.parse(tier.worker, "WorkerType")
    executors = tier.workers or 1
    threads = max(executor.millicores // CORE, 1) * executors
    command = _command_line(request, program, threads)
    total = Resources(
        millicores=driver.millicores + executor.millicores * executors
        if driver.millicores and executor.millicores
        else 0,
        memory=driver.memory + executor.memory * executors if driver.memory and executor.memory else 0,
        gpus=driver.gpus + executor.gpus * executors,
    )
    notes.append(f"Spark runs in local mode: {executors} executor(s) are {threads} thread(s) of the driver")
    lead = Program(command=command, args=program.args, runtime=program.runtime, wants=program.wants)
    return (Role("master", lead, resources=total, leads=True, task_type="chief"),)


def read_conf(entries: Sequence[str]) -> list[tuple[str, str]]:
    """RuntimeConf's `Key=Value` strings; empty ones are skipped."""
    pairs: list[tuple[str, str]] = []
    for index, entry in enumerate(entries):
        key, separator, value = entry.partition("=")
        if entry and (not separator or not key.strip()):
            field = f"RuntimeConf.{index}"
            raise Invalid(
                f"{field}: {entry!r} must be <key>=<value>, as in spark.executor.memory=2g.", field=field
            )
        if entry:
            pairs.append((key.strip(), value))
    return pairs


def _command_line(request: wire.JobFields, program: Program, threads: int) -> tuple[str, ...]:
    application = program.command
    if application and application[0] == SUBMIT:
        application = application[1:]
    options = ["--master", f"local[{threads}]", "--name", request.name]
    for key, value in read_conf(request.runtime_conf or ()):
        if key == "class":
            options += ["--class", value]
        elif key.startswith("spark."):
            options += ["--conf", f"{key}={value}"]
        else:
            raise Invalid(
                f"RuntimeConf: {key!r} is not a setting of Spark; use class and spark.*", field="RuntimeConf"
            )
    return (SUBMIT, *options, *application)
