"""Lists, makes and checks the runtimes of this machine, for operators."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable

from turnout import pools
from turnout.engines.local.environments.definition import Definition
from turnout.engines.local.environments.environments import NO_UV
from turnout.engines.local.machine.machine import Machine
from turnout.engines.runtimes import RuntimeCheck, RuntimeView
from turnout.errors import NotFound, Unsupported

_UV_SECONDS = 20


class LocalRuntimeOperations:
    """See `turnout.engines.runtimes.RuntimeOperations`."""

    def __init__(self, machine: Callable[[], Machine]) -> None:
        """`machine`: there when the first method is called."""
        self._machine = machine

    async def all(self) -> list[RuntimeView]:
        runtimes = self._machine().runtimes
        names = dict.fromkeys([*runtimes.names(), *runtimes.definitions()])
        return [await pools.disk.run(pools.OWN, self._view, name) for name in names]

    async def make(self, name: str) -> AsyncIterator[str]:
        definition, environments = self._definition(name), self._machine().environments
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        making = asyncio.create_task(environments.make(definition, lines.put_nowait, again=True))
        making.add_done_callback(lambda _: lines.put_nowait(None))
        try:
            while (line := await lines.get()) is not None:
                yield line
            await making
        finally:
            making.cancel()

    async def check(self, name: str) -> AsyncIterator[RuntimeCheck]:
        runtimes, environments = self._machine().runtimes, self._machine().environments
        if name in runtimes.missing:
            yield RuntimeCheck("python", False, runtimes.missing[name])
            return
        definition = self._find(name)
        if definition is None:
            yield RuntimeCheck("python", True, runtimes.describe(name))
            return
        yield RuntimeCheck("python", True, f"Python {definition.python.version} ({definition.python.path})")
        if environments.uv is None:
            yield RuntimeCheck("uv", False, NO_UV)
            return
        yield RuntimeCheck("uv", True, await pools.disk.run(pools.OWN, _version, environments.uv))
        if environments.is_made(definition):
            yield RuntimeCheck("environment", True, str(environments.path(definition)))
            return
        found = await environments.resolve(definition)
        yield RuntimeCheck("packages", True, f"{len(found)} to install: {', '.join(found)}")
        yield RuntimeCheck("environment", True, f"not made yet: turnout runtime make {name}")

    def _find(self, name: str) -> Definition | None:
        """Raises NotFound."""
        runtimes = self._machine().runtimes
        definition = runtimes.definition(name)
        if name not in runtimes.names() and not (definition and definition.preset):
            known = ", ".join(runtimes.names()) or "none"
            raise NotFound(
                f"there is no runtime {name!r}; the settings have: {known}. "
                "With [runtimes] make = true there are also the presets of the APIs."
            )
        return definition

    def _definition(self, name: str) -> Definition:
        definition = self._find(name)
        if definition is None:
            raise Unsupported(
                f"the runtime {name} is an interpreter that the settings name: Turnout makes no environment for it"
            )
        return definition

    def _view(self, name: str) -> RuntimeView:
        machine = self._machine()
        runtimes, environments = machine.runtimes, machine.environments
        default = runtimes.is_default(name)
        definition = runtimes.definition(name)
        if name in runtimes.missing:
            return RuntimeView(name, "failed", default, "", "", [], [], 0, None, None, runtimes.missing[name])
        if definition is None:
            path = runtimes.get(name).python
            return RuntimeView(
                name, "ready", default, runtimes.version(name), path, [], [], 0, None, None, ""
            )
        record = environments.record(definition)
        return RuntimeView(
            name,
            environments.state(definition),
            default,
            definition.python.version,
            runtimes.get(name).python,
            list(definition.lines),
            record.installed if record else [],
            record.bytes if record else 0,
            record.made if record else None,
            environments.last_use(definition),
            environments.failure(definition),
        )


def _version(uv: str) -> str:
    done = subprocess.run(
        [uv, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_UV_SECONDS
    )
    return f"{done.stdout.strip()} ({uv})"
