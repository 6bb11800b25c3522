"""The settings of runtimes: `[runtimes.X]`, and what `[runtimes]` says of all of them."""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from turnout.errors import Misconfigured

_LONGEST_MAKING = 86_400
_REQUIREMENT = re.compile(r"[A-Za-z0-9][^\x00-\x1f\x7f]*")
"""A line of a requirements file that cannot be an option."""
_VERSION = re.compile(r"\d+\.\d+")
DEFAULT = "default"
"""The runtime of this name is the default one, unless `[runtimes] default` names another."""


class RuntimeSettings(msgspec.Struct, forbid_unknown_fields=True):
    """The interpreter, packages and directories that stand for a runtime of a dialect's catalogue."""

    python: str = ""
    """The interpreter: its path, or the version of an installed one, such as `3.12`. Empty: the host's."""
    packages: list[str] = []
    """Requirements such as `torch==2.*`: an environment with them is made when a job first asks for it."""
    requirements: str = ""
    """The absolute path of a requirements file, in place of or besides `packages`."""
    build: bool = False
    """Whether packages without a wheel are built, which runs their code when the environment is made."""
    image: str = ""
    """The image that its programs run in."""
    mounts: dict[str, str] = {}
    """Directories that the cloud's image would have: path in the job -> directory here, read-only."""
    lead_task: Literal["chief", "master"] = "chief"
    """The lead's name in TF_CONFIG: TensorFlow before 1.4 wants `master`."""
    entrypoint: list[str] = []
    """The entry point and the default arguments of the image that this runtime stands for."""
    cmd: list[str] = []

    @property
    def made(self) -> bool:
        """Whether Turnout makes its environment."""
        return bool(self.packages or self.requirements)


class RuntimeDefaults(msgspec.Struct, forbid_unknown_fields=True):
    """What `[runtimes]` says of all runtimes, beside the tables `[runtimes.X]`."""

    make: bool = False
    """Whether environments for the presets of the APIs are made when a job first asks for one."""
    default: str = ""
    """The runtime of jobs whose own has no meaning here; empty: `default` if there is one, else the host's Python."""
    index: str = ""
    """The package index; empty: PyPI."""
    extra_indexes: list[str] = []
    find_links: list[str] = []
    """Directories or pages with wheels, in addition to the index."""
    offline: bool = False
    """Whether no index is used: `find_links` and what was downloaded before have everything."""
    make_seconds: float = 1800
    """How long it may take to make an environment."""


def runtime_table(name: str) -> str:
    """The heading of a runtime's settings; TOML wants quotes around a name with dots."""
    return f"[runtimes.{name}]" if re.fullmatch(r"[\w-]+", name) else f'[runtimes."{name}"]'


def default_runtime(runtimes: Mapping[str, RuntimeSettings], defaults: RuntimeDefaults) -> str:
    """The runtime of jobs whose own has no meaning here; empty: the host's Python."""
    return defaults.default or (DEFAULT if DEFAULT in runtimes else "")


def check(runtimes: Mapping[str, RuntimeSettings], defaults: RuntimeDefaults) -> None:
    """Raises Misconfigured."""
    if defaults.default and defaults.default not in runtimes:
        known = ", ".join(runtimes) or "none"
        raise Misconfigured(
            f"[runtimes] default = {defaults.default!r} is not a runtime of the settings; there are: {known}"
        )
    if not 1 <= defaults.make_seconds <= _LONGEST_MAKING:
        raise Misconfigured(f"[runtimes] make_seconds must be from 1 to {_LONGEST_MAKING}")
    for name, runtime in runtimes.items():
        table = runtime_table(name)
        for package in runtime.packages:
            if not _REQUIREMENT.fullmatch(package):
                raise Misconfigured(
                    f'{table} packages: {package!r} is not a requirement such as "torch==2.*" or "numpy"'
                )
        if runtime.requirements and not runtime.requirements.startswith("/"):
            raise Misconfigured(f"{table} requirements = {runtime.requirements!r} must be an absolute path")
        python = runtime.python
        if python and not python.startswith("/") and not _VERSION.fullmatch(python):
            raise Misconfigured(
                f"{table} python = {python!r} must be the absolute path of an interpreter or a version such as 3.12"
            )
