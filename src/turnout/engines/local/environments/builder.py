"""The process that makes one environment: it runs uv as a user that owns nothing else.

Building a package runs the package's code. If the service is root, everything runs in a process namespace of its own,
so nothing of it is left when this process has ended. The service then takes the files away from that user.
"""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from turnout.child_processes.bootstrap import Reply, Setup, drop_privileges, read_setup, reply

_CLONE_NEWPID = 0x20000000
_PR_SET_PDEATHSIG = 1
_C = ctypes.CDLL(None, use_errno=True)

_FIND_WHEELS = """
import glob, json, os
places = ["/usr/share/python-wheels"]
try:
    import ensurepip
    places.insert(0, os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"))
except ImportError:
    pass
found = [sorted(glob.glob(os.path.join(place, "*.whl"))) for place in places]
print(json.dumps(next(filter(None, found), [])))
"""
"""Python's own wheels of pip and, before 3.12, setuptools, with which jobs install packages of their own."""
_LAST = 1200
"""How many characters of uv's last lines are kept."""
_SECRET = re.compile(r"(?<=://)[^/@\s]+@")


class BuilderSetup(Setup):
    uv: str = ""


class Build(msgspec.Struct):
    id: int
    directory: str
    """Empty, and this user's. The environment is made in `environment` below it."""
    cache: str
    python: str
    requirements: str
    """The content of a requirements file."""
    build: bool
    """Whether packages without a wheel are built."""
    offline: bool
    variables: dict[str, str]
    """Of uv."""
    make: bool = True
    """Otherwise it only finds out which packages that would be."""


class BuilderReply(Reply):
    line: str = ""
    """Progress, in uv's words."""
    failed: str = ""
    """Why it failed: uv's last lines."""
    installed: list[str] | None = None
    """On success: `numpy==2.4.6`."""

    @property
    def last(self) -> bool:
        return not self.line


class _Failed(Exception):
    """Its text is for users."""


def main() -> None:
    setup = read_setup(BuilderSetup)
    # Opened with the service's rights: it may be in a directory that this process cannot enter.
    uv = os.open(setup.uv, os.O_PATH)
    separate = os.geteuid() == 0 and setup.uid >= 0 and _C.unshare(_CLONE_NEWPID) == 0
    drop_privileges(setup)
    child = os.fork() if separate else 0
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    if separate:
        _C.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for line in sys.stdin.buffer:
        build = msgspec.json.decode(line, type=Build)
        reply(_run(Uv(uv, build), build))


class Uv:
    """Runs uv, passes its progress on, and keeps its last lines."""

    def __init__(self, program: int, build: Build) -> None:
        self._program = program
        self._build = build
        self._last: list[str] = []
        self._reports = False
        self._code = 0

    def run(self, *arguments: str, reports: bool = False) -> list[str]:
        """Returns its output. `reports`: whether its progress goes to the service. Raises _Failed."""
        self._reports = reports
        self._last = []
        lines = list(self._lines(*arguments))
        if self._code:
            raise _Failed(shorten(self._last))
        return lines

    def _lines(self, *arguments: str) -> Iterator[str]:
        base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": self._build.directory}
        base |= {"TMPDIR": self._build.directory, "UV_CACHE_DIR": self._build.cache}
        with subprocess.Popen(
            ["uv", "--no-config", "--no-python-downloads", "--no-progress", "--system-certs", *arguments],
            executable=f"/proc/self/fd/{self._program}",
            pass_fds=(self._program,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._build.directory,
            env=base | self._build.variables,
            preexec_fn=_end_with_parent,
        ) as process:
            assert process.stdout
            for raw in process.stdout:
                line = without_secrets(raw.decode(errors="replace").rstrip())
                self._last.append(line)
                del self._last[:-40]
                if self._reports and re.match(r" *(Resolved|Downloading|Building|Prepared|Installed) ", line):
                    reply(BuilderReply(self._build.id, line=line.strip()))
                yield line
        self._code = process.returncode


def _run(uv: Uv, build: Build) -> BuilderReply:
    try:
        return BuilderReply(build.id, installed=_make(uv, build) if build.make else _find(uv, build))
    except _Failed as error:
        return BuilderReply(build.id, failed=str(error) or "uv did not say why")
    except OSError as error:
        return BuilderReply(build.id, failed=str(error))


def _make(uv: Uv, build: Build) -> list[str]:
    environment = f"{build.directory}/environment"
    python = f"{environment}/bin/python"
    # Relocatable: it gets its final name when it is complete.
    uv.run("venv", "--relocatable", "--python", build.python, environment)
    options = ["--python", python, "--compile-bytecode"]
    wheels = _bundled_wheels(build.python)
    if wheels:
        uv.run("pip", "install", *options, "--no-index", "--no-deps", *wheels)
    requirements = _requirements(build, bool(wheels))
    uv.run("pip", "install", *options, *_sources(build), "--requirements", requirements, reports=True)
    uv.run("pip", "check", "--python", python)
    done = subprocess.run(
        [python, "-I", "-c", "import pip"], capture_output=True, text=True, env={}, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise _Failed(f"its Python does not run: {done.stderr.strip()[-300:]}")
    return [line for line in uv.run("pip", "freeze", "--python", python) if "==" in line or " @ " in line]


def _find(uv: Uv, build: Build) -> list[str]:
    options = ["--python", build.python, "--no-header", "--no-annotate", "--quiet", *_sources(build)]
    return [line for line in uv.run("pip", "compile", *options, _requirements(build, True)) if "==" in line]


def _sources(build: Build) -> list[str]:
    options = [] if build.build else ["--only-binary", ":all:"]
    return [*options, "--no-index"] if build.offline else options


def _requirements(build: Build, has_pip: bool) -> str:
    path = Path(build.directory, "requirements.txt")
    path.write_text(build.requirements + ("" if has_pip else "pip\n"))
    return str(path)


def _bundled_wheels(python: str) -> list[str]:
    done = subprocess.run(
        [python, "-I", "-S", "-c", _FIND_WHEELS], capture_output=True, stdin=subprocess.DEVNULL, env={}
    )
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return []
    return [path for path in found if os.path.basename(path).startswith(("pip-", "setuptools-"))]


def without_secrets(line: str) -> str:
    """Without the credentials of URLs."""
    return _SECRET.sub("", line)


def shorten(lines: list[str]) -> str:
    """The error that uv ends with, in one line."""
    begin = max((number for number, line in enumerate(lines) if line.startswith("error:")), default=0)
    words = " ".join(" ".join(lines[begin:]).split()).removeprefix("error: ")
    return words if len(words) <= _LAST else words[: _LAST // 2] + " … " + words[-_LAST // 2 :]


def uv_variables(
    index: str, extra: list[str], find_links: list[str], download: Mapping[str, str]
) -> dict[str, str]:
    """In the environment and not among the arguments, because every user of the machine can read those."""
    given = {
        "UV_DEFAULT_INDEX": index,
        "UV_INDEX": " ".join(extra),
        "UV_FIND_LINKS": " ".join(find_links),
    }
    return {**download, **{name: value for name, value in given.items() if value}}


def _end_with_parent() -> None:
    _C.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
