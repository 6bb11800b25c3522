"""Checks a cluster for `turnout cluster check`: the commands, and last a job on a node that connects to the service."""

import asyncio
import shlex
import time
from collections.abc import AsyncIterator

from turnout.engines import Unreachable
from turnout.engines.remote import CheckResult, Phase, RunnerCall
from turnout.engines.slurm.commands import Commands
from turnout.engines.slurm.refusals import refusal
from turnout.engines.slurm.script import COMMENT, placement_options
from turnout.engines.slurm.settings import SlurmSettings
from turnout.engines.slurm.states import FORMAT, SEPARATOR, Row, cluster_job, rows

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
JOB_SECONDS = 60.0
"""How long the job on a node may wait and run."""
_USABLE = ("idle", "mix", "alloc", "comp", "resv", "plnd", "block")
_ON_NODE = """\
import json, platform, ssl, sys, urllib.request
try:
    context = ssl._create_unverified_context()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    answer = json.loads(opener.open(sys.argv[1], timeout=15).read())
    said = "reached" if answer.get("turnout") else "something else answers"
except Exception as error:
    said = str(error) or type(error).__name__
print("Python", platform.python_version(), "on", platform.node() + ":", said)
"""


async def checks(
    commands: Commands, settings: SlurmSettings, runner: RunnerCall, name: str, seconds: float = JOB_SECONDS
) -> AsyncIterator[CheckResult]:
    """Ends at the first result after which the others have no chance."""
    version = await _commands(commands, settings)
    yield version
    if not version.ok:
        return
    partition = await _partition(commands, settings)
    yield partition
    if not partition.ok:
        return
    accepted = await _accepted(commands, settings)
    yield accepted
    if accepted.ok:
        async for result in _on_node(commands, settings, runner, name, seconds):
            yield result


async def _commands(commands: Commands, settings: SlurmSettings) -> CheckResult:
    where = f"through `{shlex.join(settings.command)}`" if settings.command else "on this machine"
    version = ""
    for command in COMMANDS:
        try:
            answer = await commands.run(command, "--version")
        except Unreachable as error:
            return CheckResult("commands", False, f"{error.message} ({where})")
        if not answer.ok:
            return CheckResult("commands", False, f"{command} --version: {answer.message} ({where})")
        version = answer.output.strip().splitlines()[-1] if answer.output.strip() else ""
    return CheckResult("commands", True, f"{', '.join(COMMANDS)} {where}: {version}")


async def _partition(commands: Commands, settings: SlurmSettings) -> CheckResult:
    which = [f"--partition={settings.partition}"] if settings.partition else []
    what = f"partition {settings.partition}" if settings.partition else "partitions"
    layout = SEPARATOR.join(("%P", "%a", "%D", "%t"))
    try:
        answer = await commands.run("sinfo", "--noheader", f"--format={layout}", *which)
    except Unreachable as error:
        return CheckResult(what, False, error.message)
    if not answer.ok:
        return CheckResult(what, False, answer.message)
    lines = [line.split(SEPARATOR) for line in answer.output.splitlines() if line.count(SEPARATOR) == 3]
    if not settings.partition:
        lines = [line for line in lines if line[0].endswith("*")]
        what = f"default partition {lines[0][0].rstrip('*')}" if lines else "default partition"
    if not lines:
        known = "Slurm does not know it, or you may not use it" if which else "there is none: set `partition`"
        return CheckResult(what, False, known)
    nodes = ", ".join(f"{count} {state}" for _, _, count, state in lines)
    up = all(line[1] == "up" for line in lines)
    usable = any(line[3].rstrip("*~#!%$@^-+").startswith(_USABLE) and line[2] != "0" for line in lines)
    words = "" if up and usable else "no node of it can be used: " if up else "it is not up: "
    return CheckResult(what, up and usable, f"{words}nodes: {nodes}")


async def _accepted(commands: Commands, settings: SlurmSettings) -> CheckResult:
    """Account, QOS, constraint and further options."""
    what = "sbatch takes a job"
    options = placement_options(settings)
    try:
        answer = await commands.run(
            "sbatch", "--test-only", "--time=1", "--ntasks=1", *options, stdin="#!/bin/sh\ntrue\n"
        )
    except Unreachable as error:
        return CheckResult(what, False, error.message)
    given = f" with {shlex.join(options)}" if options else ""
    if not answer.ok:
        return CheckResult(what, False, f"{answer.message}{given}")
    return CheckResult(what, True, f"yes{given}")


async def _on_node(
    commands: Commands, settings: SlurmSettings, runner: RunnerCall, name: str, seconds: float
) -> AsyncIterator[CheckResult]:
    what = "a node runs a job"
    url = f"{runner.endpoint}/runner/v1/ping"
    text = "\n".join(
        (
            "#!/bin/sh",
            f"said=$({shlex.join((settings.python, '-c', _ON_NODE, url))} 2>&1 | tail -n 1 | head -c 800)",
            f'scontrol update "job=$SLURM_JOB_ID" "comment={COMMENT} $said"',
        )
    )
    try:
        answer = await commands.run(
            "sbatch", "--parsable", f"--job-name={name}", "--time=2", "--no-requeue", "--ntasks=1", "--chdir=/",
            "--output=/dev/null", "--error=/dev/null", *placement_options(settings), stdin=text,
        )  # fmt: skip
        if not answer.ok:
            yield CheckResult(what, False, refusal(answer).message)
            return
        job = answer.output.split()[-1].partition(";")[0]
        row = await _ended(commands, job, seconds)
        await commands.run("scancel", job)
    except Unreachable as error:
        yield CheckResult(what, False, error.message)
        return
    state = cluster_job(row)
    said = row.comment.removeprefix(COMMENT).strip()
    if state.phase is Phase.PENDING:
        yield CheckResult(what, False, f"it still waits after {seconds:g} s. {state.why}")
    elif not said:
        yield CheckResult(
            what, False, f"job {job} said nothing on {row.nodes}; its state is {row.state}. {state.why}"
        )
    else:
        yield CheckResult(
            what, said.startswith("Python "), said.partition(": ")[0] if "Python " in said else said
        )
        if said.startswith("Python "):
            answer = said.partition(": ")[2]
            yield CheckResult.reach(runner.endpoint, "" if answer == "reached" else answer)


async def _ended(commands: Commands, job: str, seconds: float) -> Row:
    """The job when it has ended, or when the time is over."""
    end = time.monotonic() + seconds
    pause = 0.25
    while True:
        answer = await commands.run(
            "squeue", "--noheader", "--states=all", f"--jobs={job}", f"--format={FORMAT}"
        )
        if not answer.ok:
            raise answer.unreachable()
        row = next(iter(rows(answer.output)), None)
        if row is None:
            raise Unreachable(f"squeue does not list job {job}")
        if cluster_job(row).phase is Phase.ENDED or time.monotonic() > end:
            return row
        await asyncio.sleep(pause)
        pause = min(2 * pause, 2.0)
