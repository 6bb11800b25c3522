"""What a machine offers to jobs, one question for each function."""

import errno
import http.client
import os
import platform
import pwd
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from turnout import __version__, config
from turnout.paths import Paths

CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "memory", "pids")


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    MISSING = "missing"


class Finding(NamedTuple):
    status: Status
    found: str
    advice: str = ""
    needed: bool = False
    """Without it no job runs."""


def versions(_: config.Settings) -> Finding:
    python = f"Python {platform.python_version()} ({sys.executable})"
    return Finding(Status.OK, f"Turnout {__version__}, {python}, {platform.system()} {platform.release()}")


def data_directory(settings: config.Settings) -> Finding:
    wanted = settings.data
    existing = next(parent for parent in (wanted, *wanted.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding(
            Status.MISSING,
            f"{wanted}: {existing} is no directory to write in",
            "name another one with --data or [server] data",
            needed=True,
        )
    free = shutil.disk_usage(existing).free / (1 << 30)
    state = "exists" if wanted == existing else "will be made"
    found = f"{wanted} ({state}, {free:.0f} GiB free)"
    if free < 2:
        return Finding(Status.WARN, found, "less than 2 GiB are free: logs and workspaces need room")
    return Finding(Status.OK, found)


def database(settings: config.Settings) -> Finding:
    if settings.store.url:
        return _postgres(settings.store.url)
    file = Paths(settings.data).database
    found = f"SQLite {sqlite3.sqlite_version}, {file}"
    if not file.exists():
        return Finding(Status.OK, f"{found} (will be made)")
    try:
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
            answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        return Finding(
            Status.MISSING, f"{found}: {error}", "the file may belong to another user", needed=True
        )
    if answer != "ok":
        return Finding(Status.MISSING, f"{found}: {answer}", "restore it from a backup", needed=True)
    return Finding(Status.OK, found)


def address(settings: config.Settings) -> Finding:
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return Finding(Status.OK, f"{host}:{port} is free")
    except OSError as error:
        if error.errno == errno.EADDRINUSE and _turnout_answers(host, port):
            return Finding(Status.OK, f"{host}:{port}: a Turnout answers there")
        advice = "choose another with --host and --port, TURNOUT_HOST and TURNOUT_PORT, or [server]"
        return Finding(Status.WARN, f"{host}:{port}: {error.strerror}", advice)


def job_user(settings: config.Settings) -> Finding:
    if os.geteuid() != 0:
        return Finding(Status.OK, f"jobs run as {pwd.getpwuid(os.geteuid()).pw_name}, who runs the service")
    name = settings.engines.local.user
    with suppress(KeyError):
        return Finding(Status.OK, f"{name} (uid {pwd.getpwnam(name).pw_uid}): jobs never run as root")
    if shutil.which("useradd"):
        return Finding(Status.OK, f"{name} (will be made by the first start)")
    advice = f"make the user {name}, or name another one with [engines.local] user"
    return Finding(Status.MISSING, f"no user {name}, and no useradd to make one", advice, needed=True)


def bubblewrap(settings: config.Settings) -> Finding:
    wanted = settings.engines.local.sandbox
    program = shutil.which("bwrap")
    if not program:
        return Finding(
            Status.MISSING,
            "not installed: jobs run without a sandbox" if wanted != "bubblewrap" else "not installed",
            "install it (Debian: apt-get install bubblewrap): jobs are then kept apart from each other and from you",
            needed=wanted == "bubblewrap",
        )
    version = _output([program, "--version"])
    as_whom = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    tried = [
        program,
        "--unshare-user",
        "--unshare-pid",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "/bin/true",
    ]
    trial = subprocess.run(tried, capture_output=True, text=True, timeout=10, check=False, cwd="/", **as_whom)
    if trial.returncode == 0:
        return Finding(Status.OK, f"{version} ({program}), works")
    why = " ".join(trial.stderr.split()) or f"exit code {trial.returncode}"
    advice = (
        "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, or an AppArmor profile for bwrap)"
    )
    return Finding(
        Status.WARN, f"{version} ({program}), does not work: {why}", advice, needed=wanted == "bubblewrap"
    )


def cgroups(_: config.Settings) -> Finding:
    mine = _own_groups()
    if not mine:
        return Finding(
            Status.MISSING, "no cpu, memory or pids controller", "limits are then set by rlimits and affinity"
        )
    version = "version 2" if (CGROUPS / "cgroup.controllers").exists() else "version 1"
    writable = sorted(name for name, group in mine.items() if _takes_a_group(group))
    found = f"{version}, controllers {', '.join(sorted(mine))}; writable: {', '.join(writable) or 'none'}"
    if set(writable) >= set(CONTROLLERS):
        return Finding(Status.OK, found)
    advice = "without them limits are set by rlimits and affinity; run as root, or let systemd delegate (Delegate=yes)"
    return Finding(Status.WARN, found, advice)


def gpus(settings: config.Settings) -> Finding:
    simulated = settings.engines.local.gpus
    if simulated != "auto":
        return Finding(Status.OK, f"{simulated} simulated, by the settings")
    try:
        names = _nvidia()
    except Exception as error:  # noqa: BLE001 - the driver's library has errors of its own for every state it is in
        return Finding(
            Status.MISSING,
            f"none ({error})",
            "jobs that ask for one are refused; TURNOUT_GPUS=<n> simulates some",
        )
    return Finding(Status.OK, f"{len(names)}: {', '.join(names)}")


def containers(_: config.Settings) -> Finding:
    broken: list[str] = []
    for name in ("podman", "docker"):
        program = shutil.which(name)
        if not program:
            continue
        with suppress(subprocess.TimeoutExpired):
            if (
                subprocess.run([program, "info"], capture_output=True, timeout=10, check=False).returncode
                == 0
            ):
                return Finding(Status.OK, f"{_output([program, '--version'])}, works")
        broken.append(f"{name} ({program}) does not answer")
    if broken:
        return Finding(Status.WARN, "; ".join(broken), "not needed: jobs run as processes")
    return Finding(Status.MISSING, "neither podman nor docker", "not needed: jobs run as processes")


def nfs(_: config.Settings) -> Finding:
    helper = shutil.which("mount.nfs", path=os.pathsep.join([*config.search_path(), "/sbin", "/usr/sbin"]))
    kernel = "\tnfs" in Path("/proc/filesystems").read_text()
    if os.geteuid() == 0 and helper and kernel:
        return Finding(Status.OK, f"the kernel mounts it ({helper})")
    lacking = [
        what
        for what, there in (
            ("root", os.geteuid() == 0),
            ("mount.nfs", helper),
            ("an NFS client in the kernel", kernel),
        )
        if not there
    ]
    return Finding(
        Status.MISSING, f"needs {' and '.join(lacking)}", "only nfs:// mounts need it; file:// works without"
    )


def _turnout_answers(host: str, port: int) -> bool:
    """Many programs answer to /healthz, so it has to name itself too."""
    anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    connection = http.client.HTTPConnection(anywhere.get(host, host), port, timeout=3)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status == 200 and answer.getheader("Turnout-Version") is not None
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _postgres(url: str) -> Finding:
    try:
        import psycopg
    except ImportError:
        advice = "install Turnout with its extra `postgres`"
        return Finding(Status.MISSING, "PostgreSQL, but psycopg is not installed", advice, needed=True)
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            version = connection.info.server_version
    except psycopg.Error as error:
        return Finding(
            Status.MISSING, f"PostgreSQL: {error}", "is [store] url right, and is it running?", needed=True
        )
    return Finding(Status.OK, f"PostgreSQL {version // 10_000}.{version % 10_000}")


def _own_groups() -> dict[str, Path]:
    """Controller -> the directory of the group that this process is in."""
    groups: dict[str, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            unified = CGROUPS / path.lstrip("/")
            with suppress(OSError):
                there = (unified / "cgroup.controllers").read_text().split()
                groups |= {name: unified for name in there if name in CONTROLLERS}
        for name in controllers.split(","):
            mounted = CGROUPS / name
            own = mounted / path.lstrip("/")
            if name in CONTROLLERS and mounted.is_dir():
                groups[name] = own if own.is_dir() else mounted
    return groups


def _takes_a_group(group: Path) -> bool:
    try:
        trial = tempfile.mkdtemp(prefix="turnout-doctor-", dir=group)
        os.rmdir(trial)
    except OSError:
        return False
    return True


def _nvidia() -> list[str]:
    import pynvml

    pynvml.nvmlInit()
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
