"""`turnout doctor`: what this machine can do for jobs, tried rather than guessed, and what would make it do more."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import typer

from turnout import config
from turnout.cli import machine, table
from turnout.cli.machine import Finding, Status
from turnout.cli.options import Form
from turnout.errors import TurnoutError

Check = Callable[[config.Settings], Finding]


def interpreter(settings: config.Settings) -> Finding:
    return _interpreter(
        settings,
        "",
        "install python3 where the job's user can reach it, or name one with [runtimes.X] python",
    )


def _interpreter(settings: config.Settings, runtime: str, advice: str) -> Finding:
    from turnout import app  # only the engine knows what it would start

    try:
        return Finding(Status.OK, app.job_interpreter(settings, runtime))
    except TurnoutError as error:
        return Finding(Status.MISSING, error.message, advice, needed=True)


def search(settings: config.Settings) -> Finding:
    from turnout import app

    if missing := app.missing_for_search():
        advice = f"for hyper-parameter search: {sys.executable} -m pip install 'turnout[search]'"
        return Finding(Status.MISSING, f"without {', '.join(missing)}", advice)
    return Finding(Status.OK, "the libraries of the extra `search`")


CHECKS: dict[str, Check] = {
    "versions": machine.versions,
    "data directory": machine.data_directory,
    "database": machine.database,
    "address": machine.address,
    "job user": machine.job_user,
    "interpreter": interpreter,
    "bubblewrap": machine.bubblewrap,
    "cgroups": machine.cgroups,
    "GPUs": machine.gpus,
    "containers": machine.containers,
    "NFS": machine.nfs,
    "search": search,
}


def doctor(data: str | None, file: str | None, output: Form) -> None:
    settings = config.load(file, {"server": {"data": data}})
    if sys.stderr.isatty():
        print("looking …", end="\r", file=sys.stderr, flush=True)
    findings = _examine(settings)
    if output == Form.JSON:
        table.show_json({name: _document(finding) for name, finding in findings.items()})
    else:
        _show(findings)
    if any(finding.status is Status.MISSING and finding.needed for finding in findings.values()):
        raise typer.Exit(1)


def _examine(settings: config.Settings) -> dict[str, Finding]:
    """All at once: some ask other programs, which may take their time."""
    checks = CHECKS | {f"runtime {name}": partial(_runtime, name) for name in settings.runtimes}
    with ThreadPoolExecutor(len(checks)) as pool:
        running = {name: pool.submit(check, settings) for name, check in checks.items()}
        return {name: future.result() for name, future in running.items()}


def _runtime(name: str, settings: config.Settings) -> Finding:
    return _interpreter(
        settings, name, f"correct {config.runtime_table(name)}: the service does not start so"
    )


def _document(finding: Finding) -> dict[str, object]:
    return {
        "status": finding.status,
        "found": finding.found,
        "advice": finding.advice,
        "needed": finding.needed,
    }


def _show(findings: dict[str, Finding]) -> None:
    rows = [[name, finding.status, finding.found] for name, finding in findings.items()]
    table.show_wrapped(["WHAT", "STATUS", "FOUND"], rows)
    advice = {name: finding.advice for name, finding in findings.items() if finding.advice}
    if advice:
        print()
    for name, text in advice.items():
        for line in table.paragraph(f"{name}: {text}"):
            print(line)
    if os.geteuid() != 0:
        print("\nLooked as an ordinary user; a service that runs as root may be able to do more.")
