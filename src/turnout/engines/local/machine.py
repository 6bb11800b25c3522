"""What this machine is and what the engine makes of it, found out once when the engine opens."""

import os
from typing import NamedTuple

from turnout.config import Settings
from turnout.engines.local import sandbox
from turnout.engines.local.account import Account, check_way, job_user
from turnout.engines.local.interpreters import Runtimes
from turnout.engines.local.node import find_gpus, node
from turnout.job import Node
from turnout.paths import Paths
from turnout.runner.plan import Layout


class Machine(NamedTuple):
    account: Account
    runtimes: Runtimes
    layout: Layout
    node: Node


def prepare(paths: Paths, settings: Settings) -> Machine:
    """Makes the job user and its directories where they are missing. Raises Misconfigured."""
    account = job_user(settings.engines.local.user)
    _make_directories(paths, account)
    check_way(account, paths.data)
    gpus = find_gpus(settings.engines.local.gpus)
    layout = Layout(
        sandbox=sandbox.options(settings, account, paths.runtimes / ".etc"),
        processes=settings.limits.processes,
        log_bytes=settings.limits.log_bytes,
        gpus=gpus.count > 0,
        gpu_devices=gpus.devices,
        user=account.name,
        group=account.gid,
    )
    runtimes = Runtimes(paths.runtimes, account, settings.runtimes)
    return Machine(account, runtimes, layout, node(settings.engines.local, gpus))


def _make_directories(paths: Paths, account: Account) -> None:
    """The data directory can be walked through by the job's user, but not listed; only its own are open to it."""
    paths.data.mkdir(mode=0o711, parents=True, exist_ok=True)
    if account.other:
        paths.data.chmod(paths.data.stat().st_mode & 0o7777 | 0o011)
    paths.runtimes.mkdir(mode=0o755, exist_ok=True)
    for directory in (paths.attempts, paths.keeper):
        directory.mkdir(mode=0o700, exist_ok=True)
        if account.other:
            os.chown(directory, account.uid, account.gid)
