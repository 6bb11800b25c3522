"""Checks before the service starts. They create nothing, so a refused start leaves nothing behind."""

import os
from pathlib import Path

from turnout.config import Settings
from turnout.engines.local.environments.definition import Interpreter, define
from turnout.engines.local.machine.interpreters import host_python, inspect, installed
from turnout.engines.local.machine.runtimes import find_version
from turnout.engines.local.users.account import (
    Account,
    Accounts,
    check_access,
    job_uids,
    supervisor_account,
)
from turnout.errors import Misconfigured
from turnout.runtimes import runtime_table


def check(settings: Settings) -> None:
    """Raises Misconfigured if jobs could not reach the data directory or a Python."""
    account = _job_account(settings)
    if account.other:
        existing = next(parent for parent in settings.data.parents if parent.exists())
        check_access(account, existing, settings.data)
    for name, runtime in settings.runtimes.items():
        if not (runtime.python and settings.remote_clusters()):  # nodes may have it
            _check_runtime(settings, name, account)
    if not settings.data.exists():
        host_python(account)


def python_of_jobs(settings: Settings, runtime: str = "") -> str:
    """The Python of a runtime, or of programs without a runtime of the settings. Raises Misconfigured."""
    account = _job_account(settings)
    path = _check_runtime(settings, runtime, account) if runtime else ""
    found = inspect(path) if path else host_python(account)
    return f"Python {found.version} ({found.path})"


def installed_pythons(settings: Settings) -> list[str]:
    """The versions of the interpreters that jobs may execute."""
    return sorted(installed(_job_account(settings)), key=lambda version: int(version.split(".")[1]))


def _job_account(settings: Settings) -> Account:
    """The account that jobs run as; of a root service, one that owns nothing."""
    local = settings.engines.local
    if os.geteuid() != 0:
        return supervisor_account(local.user)
    return Accounts(Account(local.user, -1, -1, other=True), job_uids(local.uids), settings.data).anyone


def _check_runtime(settings: Settings, name: str, account: Account) -> str:
    """Returns the path of its interpreter; empty: the host's. Raises Misconfigured."""
    runtime, table = settings.runtimes[name], runtime_table(name)
    python = runtime.python
    if python and not python.startswith("/"):
        python = find_version(name, runtime, installed(account))
    for what, path in {"python": python, **runtime.mounts}.items():
        if path and not Path(path).exists():
            setting = "python" if what == "python" else f"mounts: {what}"
            raise Misconfigured(f"{table} {setting} = {path!r} does not exist")
    if python and (obstacle := account.blocked(Path(python))):
        raise Misconfigured(
            f"{table} python = {runtime.python!r} cannot be executed by {account.name}, who runs the jobs: "
            f"the permissions of {obstacle} do not allow it"
        )
    if runtime.made:
        define(name, runtime, Interpreter(python, "", ()))
    return python
