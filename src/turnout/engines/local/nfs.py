"""`nfs://server/directory`: mounted by the kernel, once for all replicas that name it, where the service is root."""

import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from turnout import config
from turnout.errors import Unsupported
from turnout.job import Launch

_OPTIONS = "rw,nosuid,nodev,soft,timeo=100"

Run = Callable[[list[str]], tuple[int, str]]


def run(argv: list[str], patience: float = 60) -> tuple[int, str]:
    """The exit code and what it said on stderr; -1 if it had to be ended. Raises OSError."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=patience
        )
    except subprocess.TimeoutExpired:
        return -1, f"there was no answer within {patience:g} seconds"
    return done.returncode, done.stderr.strip()


def lacking() -> str:
    """What this machine would need to mount NFS. Whether its kernel can is known when mount.nfs has asked it to: the
    client may be a module."""
    if os.geteuid():
        return "root"
    path = os.pathsep.join([*config.search_path(), "/sbin", "/usr/sbin"])
    if not shutil.which("mount.nfs", path=path):
        return "mount.nfs (in the package nfs-common or nfs-utils)"
    return "" if "\tnfs" in Path("/proc/filesystems").read_text() else "an NFS client in the kernel"


def is_for(source: str) -> bool:
    return source.startswith(("nfs://", "cephfs://"))


def wanted(launch: Launch) -> list[str]:
    return [mount.source for mount in launch.spec.mounts if is_for(mount.source)]


class Mounts:
    """They stay mounted: the next job finds them there, and one that runs is never cut off."""

    def __init__(self, directory: Path, run: Run = run, root: bool | None = None) -> None:
        self._directory = directory
        self._run = run
        self._root = os.geteuid() == 0 if root is None else root
        self._one_at_a_time = threading.Lock()

    def check(self, source: str) -> None:
        """Raises Unsupported if it is plain from the start that it cannot be mounted."""
        if source.startswith("cephfs://"):
            raise Unsupported(
                f"{source} cannot be mounted: CephFS is not supported here; use nfs:// or file://"
            )
        if not self._root:
            raise Unsupported(f"{source} cannot be mounted: only a service that runs as root may mount NFS")

    def mount(self, source: str) -> Path:
        """Where it is; may take as long as the server. Raises Unsupported, with the reason, if it cannot be mounted."""
        self.check(source)
        rest = source.partition("://")[2]
        server, _, directory = rest.partition("/")
        export = f"{server.removesuffix(':')}:/{directory}"
        # Not the name itself, which may be longer than a file's can be.
        place = self._directory / hashlib.sha256(export.encode()).hexdigest()[:32]
        try:
            with self._one_at_a_time:
                if os.path.ismount(place):
                    return place
                place.mkdir(mode=0o755, parents=True, exist_ok=True)
                code, said = self._run(["mount", "-t", "nfs", "-o", _OPTIONS, "--", export, str(place)])
        except OSError as error:
            raise Unsupported(f"{source} cannot be mounted: {error}") from None
        if code:
            why = said or f"mount answered {code}"
            if needs := lacking():
                why += f"; it needs {needs}"
            raise Unsupported(f"{source} cannot be mounted: {why}")
        return place
