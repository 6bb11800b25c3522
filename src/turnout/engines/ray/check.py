"""Checks a cluster for `turnout cluster check`: the bridge, and last a task on a node that connects to the service."""

from collections.abc import AsyncIterator

from turnout.engines import Refused, Unreachable
from turnout.engines.ray.bridge import Bridge
from turnout.engines.ray.settings import RaySettings
from turnout.engines.ray.states import amount
from turnout.engines.remote import CheckResult, RunnerCall

TASK_SECONDS = 60.0
_SHOWN = ("CPU", "GPU", "memory")


async def checks(bridge: Bridge, settings: RaySettings, runner: RunnerCall) -> AsyncIterator[CheckResult]:
    """Ends after the first failure that makes the other checks pointless."""
    connected = f"{settings.python} reaches Ray"
    try:
        nodes = await bridge.ask("nodes")
    except (Unreachable, Refused) as error:
        yield CheckResult(connected, False, error.message)
        return
    yield CheckResult(connected, True, f"{bridge.versions}, address {settings.address}")
    total: dict[str, float] = {}
    for node in nodes:
        for name, value in node["resources"].items():
            total[name] = total.get(name, 0) + value
    wanted = [name for name in (*_SHOWN, settings.accelerator, *settings.resources) if total.get(name)]
    shown = ", ".join(amount(name, total[name]) for name in dict.fromkeys(wanted))
    yield CheckResult(
        "nodes", bool(total.get("CPU")), f"{len(nodes)} with {shown}" if shown else "none has a CPU"
    )
    missing = [name for name in settings.resources if not total.get(name)]
    if settings.accelerator_type and not total.get(f"accelerator_type:{settings.accelerator_type}"):
        missing.append(f"accelerator_type:{settings.accelerator_type}")
    if missing:
        yield CheckResult("resources", False, f"no node has {', '.join(missing)}")
        return
    if total.get("CPU"):
        async for result in _on_node(bridge, settings, runner):
            yield result


async def _on_node(bridge: Bridge, settings: RaySettings, runner: RunnerCall) -> AsyncIterator[CheckResult]:
    what = "a node runs a task"
    arguments = {
        "url": f"{runner.endpoint}/runner/v1/ping",
        "resources": {"CPU": 1.0, **settings.resources},
        "seconds": TASK_SECONDS,
    }
    try:
        said = await bridge.ask("check", TASK_SECONDS + 15, **arguments)
    except (Unreachable, Refused) as error:
        yield CheckResult(what, False, error.message)
        return
    if said is None:
        yield CheckResult(what, False, f"it still waits for a free CPU after {TASK_SECONDS:g} s")
        return
    yield CheckResult(what, True, f"Python {said['python']} on {said['node']}")
    yield CheckResult.reach(runner.endpoint, said["trouble"])
