"""Prepares this machine for jobs when the engine opens: users, directories, sandbox, network, interpreters."""

from typing import NamedTuple

from turnout.config import Settings
from turnout.engines.local.data.copies import revoke_access_of_others
from turnout.engines.local.environments.environments import Environments
from turnout.engines.local.machine import network, podman, sandbox
from turnout.engines.local.machine.network import JobNetwork
from turnout.engines.local.machine.node import find_gpus, gpu_driver, node
from turnout.engines.local.machine.runtimes import Runtimes
from turnout.engines.local.users import account, ownership
from turnout.engines.local.users.account import Accounts, check_access
from turnout.engines.local.users.job_users import JobUsers
from turnout.errors import Misconfigured
from turnout.job import Node
from turnout.paths import Paths
from turnout.runner.plan import Layout


class Machine(NamedTuple):
    accounts: Accounts
    users: JobUsers
    runtimes: Runtimes
    environments: Environments
    layout: Layout
    node: Node
    network: JobNetwork
    no_images: str = ""
    """Why it cannot run images; empty: it can."""


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
    no_images = "" if command else "that needs a sandbox of bubblewrap"
    if settings.engines.local.containers == "off":
        no_images = 'the settings have [engines.local] containers = "off"'
    wants_podman = settings.engines.local.containers == "podman"
    if wants_podman and not command:
        raise Misconfigured(
            '[engines.local] containers = "podman" needs bubblewrap for jobs without an image'
        )
    layout = Layout(
        sandbox=command,
        image_sandbox=sandbox.image_options(etc, command) if command else (),
        podman=podman.find(accounts.anyone) if wants_podman else None,
        processes=settings.limits.processes,
        log_bytes=settings.limits.log_bytes,
        disk=settings.limits.disk,
        gpus=gpus.count > 0,
        gpu_devices=gpus.devices,
        gpu_driver=gpu_driver() if gpus.devices and not no_images else None,
        own_network=job_network.own,
    )
    environments = Environments(paths.environments, accounts, settings.runtime_defaults)
    environments.prepare()
    runtimes = Runtimes(paths, accounts.anyone, settings, environments, gpus.count > 0)
    users = JobUsers(accounts, etc if command else None)
    capacity = node(settings.engines.local, gpus)
    return Machine(accounts, users, runtimes, environments, layout, capacity, job_network, no_images)
