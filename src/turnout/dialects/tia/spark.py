"""Spark jobs: one driver that runs `spark-submit` in local mode, its executors being threads of it."""

from collections.abc import Sequence

from turnout.dialects.tia import machine, wire
from turnout.dialects.tia.catalogue import CUSTOM, Tier
from turnout.errors import Invalid
from turnout.job import Program, Resources, Role

SUBMIT = "spark-submit"


def roles(request: wire.JobFields, program: Program, tier: Tier, notes: list[str]) -> tuple[Role, ...]:
    """Workers are executors and the master is the driver; parameter servers do not exist and are ignored."""
    name = (request.scale_tier or "").upper()
    if name not in ("", CUSTOM) and not name.endswith("_DIST"):
        raise Invalid(
            f"ScaleTier: {request.runtime_version} runs on a _DIST tier or {CUSTOM}, not {request.scale_tier}.",
            field="ScaleTier",
        )
    driver = machine.parse(tier.master, "MasterType")
    executor = machine.parse(tier.worker, "WorkerType")
    executors = tier.workers or 1
    threads = int(max(executor.cpu, 1)) * executors
    command = _command_line(request, program, threads)
    total = Resources(
        cpu=driver.cpu + executor.cpu * executors if driver.cpu and executor.cpu else 0,
        memory=driver.memory + executor.memory * executors if driver.memory and executor.memory else 0,
        gpus=driver.gpus + executor.gpus * executors,
    )
    notes.append(f"Spark runs in local mode: {executors} executor(s) are {threads} thread(s) of the driver")
    lead = Program(command=command, args=program.args, runtime=program.runtime, wants=program.wants)
    return (Role("master", lead, resources=total, leads=True, task_type="chief"),)


def read_conf(entries: Sequence[str]) -> list[tuple[str, str]]:
    """RuntimeConf's `Key=Value` strings; blank ones are left out."""
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
                f"RuntimeConf: {key!r} is not known; there are class and spark.*", field="RuntimeConf"
            )
    return (SUBMIT, *options, *application)
