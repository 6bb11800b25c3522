"""Podman, where the settings have it run the jobs in images: whether it works on this machine."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from turnout.engines.local.users.account import Account
from turnout.errors import Misconfigured
from turnout.runner.plan import PodmanTools
from turnout.runner.supervisor.replicas import podman_client

_PROGRAMS = ("podman", "crun", "conmon", "catatonit")
_PYTHONS = (sys.executable, "/usr/bin/python3")
_ELSEWHERE = "/usr/libexec/podman:/usr/lib/podman:/usr/sbin"
"""Where distributions install what podman needs."""
_SECONDS = 30


def find(account: Account) -> PodmanTools:
    """Tries a container as a user of jobs. Raises Misconfigured."""
    programs = {name: shutil.which(name) or shutil.which(name, path=_ELSEWHERE) for name in _PROGRAMS}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        raise Misconfigured(f"{_SETTING} needs {', '.join(missing)}, which this machine does not have")
    paths = tuple(path for path in programs.values() if path)
    trouble = ""
    for python in _PYTHONS:
        trouble = _try((python, *paths), account)
        if not trouble:
            return PodmanTools(python, *paths)
    raise Misconfigured(
        f"{_SETTING}, but podman cannot run a container for the user of a job here: {trouble}"
    )


_SETTING = '[engines.local] containers = "podman"'


def _try(tools: tuple[str, ...], account: Account) -> str:
    """Runs a container whose program is its init. Returns why that fails; empty: it works."""
    python, *others = tools
    become = {"user": account.uid, "group": account.gid, "extra_groups": []} if account.other else {}
    with tempfile.TemporaryDirectory(prefix="turnout-podman-") as directory:
        root, state, options = (Path(directory, name) for name in ("root", "state", "options"))
        root.mkdir()
        state.mkdir()
        options.write_text("\0".join(("--bind", str(root), "/", "--hostname", "x")) + "\0")
        if account.other:
            for path in (Path(directory), root, state, options):
                shutil.chown(path, account.uid, account.gid)
        source = Path(podman_client.__file__).read_text()
        # As the supervisor does: descriptors 3 and 4 are the options and the status.
        redirect = 'exec "$@" 3<"$OPTIONS" 4>/dev/null'
        program = ("/run/podman-init", "--version")
        command = (python, "-I", "-S", "-c", source, "check", str(state), *others, "--", *program)
        try:
            done = subprocess.run(
                ("/bin/sh", "-c", redirect, "sh", *command),
                capture_output=True,
                text=True,
                cwd="/",
                timeout=_SECONDS,
                env={"OPTIONS": str(options), "PATH": "/usr/bin:/bin"},
                **become,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode == 0 and done.stdout:
        return ""
    return done.stderr.strip()[-500:] or f"it exited with code {done.returncode}"
