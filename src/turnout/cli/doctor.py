"""`turnout doctor`: checks what this machine can do for jobs, and shows what is missing."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import typer

from turnout import config
from turnout.cli import checks, table
from turnout.cli.checks import CheckStatus, Finding
from turnout.cli.options import Form
from turnout.engines.local.data import nfs as engine_nfs
from turnout.engines.local.environments.environments import NO_UV, find_uv
from turnout.engines.local.machine import network as engine_network
from turnout.engines.local.machine import preflight
from turnout.engines.local.users.account import job_uids
from turnout.errors import TurnoutError
from turnout.runtimes import runtime_table
from turnout.search import missing_packages

Check = Callable[[config.Settings], Finding]


def interpreter(settings: config.Settings) -> Finding:
    return _interpreter(
        settings,
        "",
        "install python3 where the job's user can reach it, or set [runtimes.X] python",
    )


def _interpreter(settings: config.Settings, runtime: str, advice: str) -> Finding:
    try:
        return Finding(CheckStatus.OK, preflight.python_of_jobs(settings, runtime))
    except TurnoutError as error:
        return Finding(CheckStatus.MISSING, error.message, advice, needed=True)


def uv(settings: config.Settings) -> Finding:
    program = find_uv()
    needed = settings.runtime_defaults.make or any(one.made for one in settings.runtimes.values())
    if program is None:
        advice = "makes environments of runtimes with packages, and presets with [runtimes] make = true"
        return Finding(CheckStatus.MISSING, NO_UV, advice, needed=needed)
    known = preflight.installed_pythons(settings)
    return Finding(CheckStatus.OK, f"{program}; makes environments on Python {', '.join(known)}")


def job_users(settings: config.Settings) -> Finding:
    try:
        return checks.job_users(settings, job_uids(settings.engines.local.uids))
    except TurnoutError as error:
        return Finding(
            CheckStatus.MISSING, error.message, "choose a range that nothing else uses", needed=True
        )


def search(settings: config.Settings) -> Finding:
    if missing := missing_packages():
        advice = f"install Turnout with all its dependencies: make setup, or {sys.executable} -m pip install turnout"
        return Finding(CheckStatus.MISSING, f"not installed: {', '.join(missing)}", advice)
    return Finding(CheckStatus.OK, "the libraries for hyper-parameter search are installed")


def network(settings: config.Settings) -> Finding:
    wanted, found = settings.engines.local.network, engine_network.probe(settings)
    if found.own:
        return Finding(
            CheckStatus.OK,
            f"one for each job; {found.outside or 'without access to other machines'}",
        )
    if wanted == "host":
        advice = 'jobs reach services on this machine\'s loopback; [engines.local] network = "private" prevents that'
        return Finding(CheckStatus.OK, "JOBS SHARE THIS MACHINE'S NETWORK, as the settings say", advice)
    advice = "needs bubblewrap, and slirp4netns or pasta (Debian: apt-get install bubblewrap slirp4netns, or passt)"
    found_text = found.trouble if wanted != "auto" else f"JOBS SHARE THIS MACHINE'S NETWORK: {found.trouble}"
    return Finding(CheckStatus.MISSING, found_text, advice, needed=wanted != "auto")


def nfs(settings: config.Settings) -> Finding:
    if missing := engine_nfs.missing_requirements():
        advice = "only nfs:// mounts need this; file:// works without"
        return Finding(CheckStatus.MISSING, f"needs {' and '.join(missing)}", advice)
    return Finding(CheckStatus.OK, "the kernel mounts it")


CHECKS: dict[str, Check] = {
    "versions": checks.versions,
    "data directory": checks.data_directory,
    "database": checks.database,
    "records": checks.records,
    "supervisor": checks.supervisor,
    "address": checks.address,
    "endpoint": checks.endpoint,
    "job users": job_users,
    "interpreter": interpreter,
    "uv": uv,
    "bubblewrap": checks.bubblewrap,
    "private network": network,
    "cgroups": checks.cgroups,
    "GPUs": checks.gpus,
    "containers": checks.containers,
    "NFS": nfs,
    "search": search,
}


def doctor(data: str | None, file: str | None, output: Form) -> None:
    settings = config.load(file, {"server": {"data": data}})
    if sys.stderr.isatty():
        print("checking …", end="\r", file=sys.stderr, flush=True)
    findings = _examine(settings)
    if output.is_document:
        table.show_document({name: _document(finding) for name, finding in findings.items()}, output)
    else:
        _show(findings, whole=output is Form.WIDE)
    if any(finding.status is CheckStatus.MISSING and finding.needed for finding in findings.values()):
        raise typer.Exit(1)


def _examine(settings: config.Settings) -> dict[str, Finding]:
    """Runs all checks at once, because some start other programs, which may be slow."""
    named: dict[str, Check] = {f"runtime {name}": partial(_runtime, name) for name in settings.runtimes}
    named |= {f"cluster {name}": partial(checks.cluster, name) for name in settings.remote_clusters()}
    with ThreadPoolExecutor(len(CHECKS) + len(named)) as pool:
        running = {name: pool.submit(check, settings) for name, check in (CHECKS | named).items()}
        return {name: future.result() for name, future in running.items()}


def _runtime(name: str, settings: config.Settings) -> Finding:
    table = runtime_table(name)
    found = _interpreter(settings, name, f"correct {table}: the service refuses to start with it")
    if found.status is CheckStatus.MISSING and settings.runtimes[name].python and settings.remote_clusters():
        advice = f"jobs on this machine cannot use it; the nodes of clusters must have what {table} names"
        return Finding(CheckStatus.WARN, found.found, advice)
    return found


def _document(finding: Finding) -> dict[str, object]:
    return {
        "status": finding.status,
        "found": finding.found,
        "advice": finding.advice,
        "needed": finding.needed,
    }


def _show(findings: dict[str, Finding], whole: bool) -> None:
    rows = [[name, finding.status, finding.found] for name, finding in findings.items()]
    table.show_wrapped(["WHAT", "STATUS", "FOUND"], rows, whole=whole)
    advice = {name: finding.advice for name, finding in findings.items() if finding.advice}
    if advice:
        print()
    for name, text in advice.items():
        for line in table.paragraph(f"{name}: {text}"):
            print(line)
    if os.geteuid() != 0:
        print(
            "\nThese are the results for an ordinary user. A service that runs as root may be able to do more."
        )
