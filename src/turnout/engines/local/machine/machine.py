"""Prepares this machine for jobs when the engine opens: users, directories, sandbox, network, interpreters."""

from typing import NamedTuple

from turnout.config import Settings
from turnout.engines.local.data.copies import revoke_access_of_others
from turnout.engines.local.machine import network, sandbox
from turnout.engines.local.machine.interpreters import Runtimes
from turnout.engines.local.machine.network import JobNetwork
from turnout.engines.local.machine.node import find_gpus, node
from turnout.engines.local.users import account, ownership
from turnout.engines.local.users.account import Accounts, check_access
from turnout.engines.local.users.job_users import JobUsers
from turnout.job import Node
from turnout.paths import Paths
from turnout.runner.plan import Layout


class Machine(NamedTuple):
    accounts: Accounts
    users: JobUsers
    runtimes: Runtimes
    layout: Layout
    node: Node
    network: JobNetwork


def prepare(paths: Paths, settings: Settings, accounts: Accounts | None = None) -> Machine:
    """Also creates the supervisor's user and directories if they are missing. Raises Misconfigured."""
    accounts = accounts or account.accounts(settings.engines.local, paths.users)
    ownership.prepare(paths, accounts.supervisor)
    revoke_access_of_others(paths)
    check_access(accounts.anyone, paths.data)
    gpus = find_gpus(settings.engines.local.gpus)
    etc = paths.runtimes / ".etc"
    command = sandbox.options(settings, accounts.anyone, etc)
    job_network = network.choose(settings, accounts, command, paths.supervisor)
    if command:
        sandbox.write_resolver(etc, job_network.resolver())
    layout = Layout(
        sandbox=command,
        processes=settings.limits.processes,
        log_bytes=settings.limits.log_bytes,
        disk=settings.limits.disk,
        gpus=gpus.count > 0,
        gpu_devices=gpus.devices,
        own_network=job_network.own,
    )
    nodes = bool(settings.remote_clusters())
    runtimes = Runtimes(paths.runtimes, accounts.anyone, settings.runtimes, nodes)
    users = JobUsers(accounts, etc if command else None)
    return Machine(accounts, users, runtimes, layout, node(settings.engines.local, gpus), job_network)
