"""What each runtime is on this machine: an interpreter, or an environment that is made when a job first asks for it."""

import os
from pathlib import Path

from turnout import config
from turnout.config import Settings
from turnout.engines.local.environments import presets
from turnout.engines.local.environments.definition import Definition, Interpreter, define
from turnout.engines.local.environments.environments import NO_UV, Environments
from turnout.engines.local.machine.interpreters import host_python, inspect, installed, write_shims
from turnout.engines.local.users.account import EXECUTE, Account
from turnout.errors import Misconfigured
from turnout.paths import Paths
from turnout.runner.plan import Runtime
from turnout.runtimes import default_runtime, runtime_table

HOST = "host"
"""The host's Python, unless a runtime of the settings has this name."""

_MOST_PRESETS = 1000


class Runtimes:
    """The runtimes of the settings and, if they say so, the presets. Every other name gets the default."""

    def __init__(
        self,
        paths: Paths,
        account: Account,
        settings: Settings,
        environments: Environments,
        gpus: bool = False,
    ) -> None:
        self._directory = paths.runtimes
        self._account = account
        self._wanted = settings.runtimes
        self._default_name = default_runtime(settings.runtimes, settings.runtime_defaults)
        self._makes_presets = settings.runtime_defaults.make
        self._environments = environments
        self._gpus = gpus
        self._host = host_python(account)
        self._by_path: dict[str, Interpreter] = {self._host.path: self._host}
        self._installed = installed(account)
        self._definitions: dict[str, Definition] = {}
        self._presets: dict[str, Definition] = {}
        self._with_shims: set[str] = set()
        self.missing: dict[str, str] = {}
        """Why jobs on this machine cannot use a runtime."""
        # With clusters beyond this machine, an interpreter need not be here.
        nodes = bool(settings.remote_clusters())
        for name, runtime in self._wanted.items():
            try:
                _check(name, runtime, account)
                self._prepare(name, runtime)
            except Misconfigured as error:
                if not nodes:
                    raise
                self.missing[name] = error.message
        if self._makes_presets:
            self._inspect_all()
        self._ready = {name: self._make(name) for name in self._wanted if name not in self.missing}
        self._host_runtime = self._make("")

    def get(self, name: str) -> Runtime:
        """Its environment may have to be made first, see `definition`."""
        ready = self._ready.get(name)
        if ready:
            return ready
        if preset := self._preset(name):
            return self._of_environment(preset, ())
        default = self._ready.get(self._default_name) if name != HOST else None
        return default or self._host_runtime

    def definition(self, name: str) -> Definition | None:
        """What the environment of a runtime is made of; None: Turnout does not make one for it."""
        return self._preset(name) or self._definitions.get(self._default_of(name))

    def definitions(self) -> dict[str, Definition]:
        """Those of the settings, and those presets that a job has asked for since the start."""
        return self._definitions | self._presets

    def names(self) -> list[str]:
        """The runtimes of the settings."""
        return list(self._wanted)

    def is_default(self, name: str) -> bool:
        return name == self._default_name

    def version(self, name: str) -> str:
        """The version of the Python of a runtime of the settings."""
        return self._interpreter(name).version

    def refuses(self, name: str) -> str:
        """Why jobs cannot use it; empty: they can."""
        if why := self.missing.get(self._default_of(name)):
            return why
        definition = self.definition(name)
        if definition and not self._environments.uv and not self._environments.is_made(definition):
            return f"the environment of the runtime {definition.runtime} cannot be made: {NO_UV}"
        return ""

    def describe(self, name: str) -> str:
        if name in self.missing:
            return f"{self._wanted[name].python}, which this machine does not have"
        if definition := self.definition(name):
            return f"Python {definition.python.version} with {definition.packages}"
        found = self._interpreter(name if name in self._wanted else self._default_of(name))
        return f"Python {found.version} ({found.path})"

    def _preset(self, name: str) -> Definition | None:
        """The definition of a preset that is made here."""
        if not self._makes_presets or not name or name in self._wanted:
            return None
        found = self._presets.get(name)
        if found is None:
            host = _minor(self._host)
            preset = presets.find(name, self._installed, host, self._gpus)
            if preset is None:
                return None
            python = self._by_path[self._installed[preset.python]] if preset.python else self._host
            found = Definition(name, preset.packages, python, preset=True)
            if len(self._presets) >= _MOST_PRESETS:
                self._presets.clear()  # users can ask for versions that never existed
            self._presets[name] = found
        return found

    def _inspect_all(self) -> None:
        """Before a job asks for a preset, because it takes a while."""
        for version, path in list(self._installed.items()):
            try:
                self._inspect(path)
            except Misconfigured:
                del self._installed[version]

    def _default_of(self, name: str) -> str:
        return name if name in self._wanted or name == HOST else self._default_name

    def _prepare(self, name: str, runtime: config.RuntimeSettings) -> None:
        """Raises Misconfigured."""
        python = self._inspect(self._path(name, runtime)) if runtime.python else self._host
        if runtime.made:
            self._definitions[name] = define(name, runtime, python)

    def _path(self, name: str, runtime: config.RuntimeSettings) -> str:
        """The interpreter that the settings name by its path or version. Raises Misconfigured."""
        return (
            runtime.python if runtime.python.startswith("/") else find_version(name, runtime, self._installed)
        )

    def _inspect(self, path: str) -> Interpreter:
        if path not in self._by_path:
            self._by_path[path] = inspect(path)
        return self._by_path[path]

    def _interpreter(self, name: str) -> Interpreter:
        runtime = self._wanted.get(name)
        return self._by_path[self._path(name, runtime)] if runtime and runtime.python else self._host

    def _make(self, name: str) -> Runtime:
        mounts = self._wanted[name].mounts if name in self._wanted else {}
        mounted = tuple((source, target) for target, source in mounts.items())
        if definition := self._definitions.get(name):
            return self._of_environment(definition, mounted)
        python = self._interpreter(name)
        shims = self._directory / (name or HOST).replace("/", "_")
        write_shims(shims, python.path)
        binds = tuple((prefix, prefix) for prefix in python.prefixes)
        return Runtime(python.path, str(shims), (*binds, *mounted), python.scripts)

    def _of_environment(self, definition: Definition, mounted: tuple[tuple[str, str], ...]) -> Runtime:
        home = str(self._environments.path(definition))
        binds = tuple((prefix, prefix) for prefix in definition.python.prefixes)
        scripts, shims = f"{home}/bin", self._environments.shims(definition)
        if definition.key not in self._with_shims or not shims.is_dir():
            self._with_shims.add(definition.key)
            write_shims(shims, f"{scripts}/python")
        return Runtime(f"{scripts}/python", str(shims), (*binds, (home, home), *mounted), scripts)


def _minor(python: Interpreter) -> str:
    return ".".join(python.version.split(".")[:2])


def find_version(name: str, runtime: config.RuntimeSettings, known: dict[str, str]) -> str:
    """The interpreter of this version. Raises Misconfigured."""
    if runtime.python not in known:
        there = ", ".join(sorted(known, key=lambda one: int(one.split(".")[1]))) or "none"
        raise Misconfigured(
            f"{runtime_table(name)} python = {runtime.python!r}: no such Python is installed that jobs may "
            f"execute; there are: {there}"
        )
    return known[runtime.python]


def _check(name: str, runtime: config.RuntimeSettings, account: Account) -> None:
    table, python = runtime_table(name), Path(runtime.python)
    if python.is_absolute():
        if not python.is_file():
            raise Misconfigured(
                f"{table} python = {runtime.python!r} must be the absolute path of an interpreter"
            )
        obstacle = account.blocked(python, EXECUTE)
        if obstacle is not None:
            raise Misconfigured(
                f"{table} python = {runtime.python!r} cannot be executed by {account.name}: "
                f"the permissions of {obstacle} do not allow it"
            )
    for target, source in runtime.mounts.items():
        if not os.path.isdir(source) or not target.startswith("/"):
            raise Misconfigured(
                f"{table} mounts: {target} = {source!r} must be an absolute path and a directory of this host"
            )
