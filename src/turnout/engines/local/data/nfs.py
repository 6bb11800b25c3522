"""Mounts `nfs://server/directory`, once for all jobs that use it. Only root can do that."""

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from turnout import config, pools
from turnout.errors import TimedOut, Unsupported
from turnout.storage import Mounted

_OPTIONS = "rw,nosuid,nodev,soft,timeo=100"

MOUNT_SECONDS = 90.0
_KILL_SECONDS = 5.0

Run = Callable[[list[str]], tuple[int, str]]


def run(argv: list[str], seconds: float = 60) -> tuple[int, str]:
    """Returns exit code and stderr; the code is -1 if it took too long and was killed.

    Raises OSError, and CommandHangs if it survives the kill.
    """
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        _, stderr = process.communicate(timeout=seconds)
        return process.returncode, stderr.strip()
    except subprocess.TimeoutExpired:
        process.kill()
    why = f"there was no answer within {seconds:g} seconds"
    try:
        process.communicate(timeout=_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        assert process.stderr
        process.stderr.close()
        raise CommandHangs(process, why) from None
    return -1, why


class CommandHangs(Exception):
    """The command waits in the kernel and survives SIGKILL."""

    def __init__(self, process: "subprocess.Popen[str]", message: str) -> None:
        super().__init__(message)
        self.process = process


def missing_requirements() -> list[str]:
    """What this machine still needs to mount NFS.

    The last one, a client in the kernel, is certain only after mount.nfs has run, which may load it as a module.
    """
    path = os.pathsep.join([*config.search_path(), "/sbin", "/usr/sbin"])
    requirements = {
        "root": os.geteuid() == 0,
        "mount.nfs (in the package nfs-common or nfs-utils)": bool(shutil.which("mount.nfs", path=path)),
        "an NFS client in the kernel": "\tnfs" in Path("/proc/filesystems").read_text(),
    }
    return [name for name, present in requirements.items() if not present]


class NfsMounter:
    """Never unmounts, so that the next job finds the mount and a running job never loses it."""

    def __init__(
        self, directory: Path, run: Run = run, root: bool | None = None, seconds: float = MOUNT_SECONDS
    ) -> None:
        """`seconds`: how long a job waits for a mount. `run` and `root` are for tests."""
        self._directory = directory
        self._seconds = seconds
        self._run = run
        self._root = os.geteuid() == 0 if root is None else root
        self._in_progress: dict[str, asyncio.Event] = {}
        """By server: the mount in progress. The event is set when it is done."""
        self._hanging: dict[str, subprocess.Popen[str]] = {}
        """By server: commands that survived SIGKILL."""

    def check(self, mounted: Mounted) -> None:
        """Raises Unsupported if it is certain without trying that it cannot be mounted."""
        if mounted.scheme == "cephfs":
            # Not its source, which may contain a secret: <user>:<secret>@<monitors>.
            monitors = mounted.server.rpartition("@")[2]
            raise Unsupported(
                f"cephfs://{monitors}/{mounted.directory} cannot be mounted: CephFS is not supported;"
                " use nfs:// or file://"
            )
        if not self._root:
            raise Unsupported(
                f"{mounted.source} cannot be mounted: only a service that runs as root may mount NFS"
            )

    async def mount(self, mounted: Mounted, project: str) -> Path:
        """Returns the mount point. Raises TimedOut, or Unsupported with the reason.

        Mounts one at a time for each server, so that a server that does not answer blocks one of the project's threads.
        """
        self.check(mounted)
        try:
            async with asyncio.timeout(self._seconds):
                while in_progress := self._in_progress.get(mounted.server):
                    await in_progress.wait()
                return await self._mount_in_thread(mounted, project)
        except TimeoutError:
            why = f"there was no answer within {self._seconds:g} seconds"
            raise TimedOut(f"{mounted.source} cannot be mounted: {mounted.server}: {why}") from None

    async def _mount_in_thread(self, mounted: Mounted, project: str) -> Path:
        """Reserves the server until the thread is done, even if the caller stops waiting."""
        server = mounted.server
        done = self._in_progress[server] = asyncio.Event()
        started = False
        loop = asyncio.get_running_loop()

        def free() -> None:
            del self._in_progress[server]
            done.set()

        def work() -> Path:
            nonlocal started
            started = True
            try:
                return self.mount_blocking(mounted)
            finally:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(free)

        try:
            return await pools.mounts.run(project, work)
        finally:
            if not started:
                free()

    def mount_blocking(self, mounted: Mounted) -> Path:
        """As `mount`, but blocks for as long as the server takes."""
        self.check(mounted)
        export = f"{mounted.server}:/{mounted.directory}"
        # A hash, because the name itself may be longer than a file name can be.
        mount_point = self._directory / hashlib.sha256(export.encode()).hexdigest()[:32]
        try:
            if not _is_mounted(mount_point):
                self._mount(mounted.source, mounted.server, export, mount_point)
            # The supervisor opens it next, and must not have to wait for the server.
            mount_point.stat()
        except OSError as error:
            raise Unsupported(f"{mounted.source} cannot be mounted: {error}") from None
        return mount_point

    def _mount(self, source: str, server: str, export: str, mount_point: Path) -> None:
        hanging = self._hanging.get(server)
        if hanging and hanging.poll() is None:
            raise Unsupported(
                f"{source} cannot be mounted: an earlier mount from {server} hangs in the kernel"
            )
        mount_point.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            code, stderr = self._run(["mount", "-t", "nfs", "-o", _OPTIONS, "--", export, str(mount_point)])
        except CommandHangs as error:
            self._hanging[server] = error.process
            code, stderr = -1, str(error)
        if code:
            why = stderr or f"mount exited with code {code}"
            if missing := missing_requirements():
                why += f"; it needs {missing[0]}"
            raise Unsupported(f"{source} cannot be mounted: {why}")


def _is_mounted(mount_point: Path) -> bool:
    """Reads the kernel's list: a stat could block on a server that does not answer."""
    escaped = re.sub(
        r"[ \t\n\\]", lambda found: f"\\{ord(found[0]):03o}", os.path.realpath(mount_point.parent)
    )
    wanted = f" {escaped}/{mount_point.name} "
    return any(wanted in line for line in Path("/proc/self/mountinfo").read_text().splitlines())
