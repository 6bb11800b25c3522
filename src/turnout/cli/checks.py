"""The checks of `turnout doctor`, one function for each."""

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
from typing import Any, NamedTuple

from turnout import __version__, config
from turnout.cli.client import Client, EndpointUnreachable
from turnout.cli.login import connect, stored
from turnout.errors import TurnoutError
from turnout.paths import Paths

CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "memory", "pids")


class CheckStatus(StrEnum):
    OK = "ok"
    WARN = "warn"
    MISSING = "missing"


class Finding(NamedTuple):
    status: CheckStatus
    found: str
    advice: str = ""
    needed: bool = False
    """Whether jobs cannot run without it."""


def versions(_: config.Settings) -> Finding:
    python = f"Python {platform.python_version()} ({sys.executable})"
    return Finding(
        CheckStatus.OK, f"Turnout {__version__}, {python}, {platform.system()} {platform.release()}"
    )


def data_directory(settings: config.Settings) -> Finding:
    wanted = settings.data
    existing = next(parent for parent in (wanted, *wanted.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding(
            CheckStatus.MISSING,
            f"{wanted}: {existing} is not a writable directory",
            "choose another one with --data or [server] data",
            needed=True,
        )
    free = shutil.disk_usage(existing).free / (1 << 30)
    state = "exists" if wanted == existing else "will be created"
    found = f"{wanted} ({state}, {free:.0f} GiB free)"
    removed = Paths(wanted).removed
    if count := _lines(removed):
        last = removed.read_text(errors="replace").splitlines()[-1]
        more = f" (the last of {count} times)" if count > 1 else ""
        advice = f"find out what removes the service's files; {removed} says when, and you may delete it"
        return Finding(CheckStatus.WARN, f"{found}; {last}{more}", advice)
    if free < 2:
        return Finding(CheckStatus.WARN, found, "less than 2 GiB is free: logs and workspaces need space")
    return Finding(CheckStatus.OK, found)


def database(settings: config.Settings) -> Finding:
    if settings.store.url:
        return _postgres(settings.store.url)
    file = Paths(settings.data).database
    found = f"SQLite {sqlite3.sqlite_version}, {file}"
    if not file.exists():
        return Finding(CheckStatus.OK, f"{found} (will be created)")
    try:
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
            answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        return Finding(
            CheckStatus.MISSING, f"{found}: {error}", "the file may belong to another user", needed=True
        )
    if answer != "ok":
        return Finding(CheckStatus.MISSING, f"{found}: {answer}", "restore it from a backup", needed=True)
    return Finding(CheckStatus.OK, found)


def records(settings: config.Settings) -> Finding:
    """Rows of the database that the service could not read."""
    file = Paths(settings.data).unreadable
    count = _lines(file)
    if not count:
        return Finding(CheckStatus.OK, "no unreadable rows found")
    first = file.read_text(errors="replace").splitlines()[0]
    advice = (
        f"restore the rows from a backup, or delete the jobs; {file} lists them all, and you may delete it"
    )
    return Finding(CheckStatus.WARN, f"{count} unreadable rows were set aside; the first: {first}", advice)


def supervisor(settings: config.Settings) -> Finding:
    """Damaged lines in the supervisor's journal and messages."""
    paths = Paths(settings.data)
    aside = {file: lines for file in (paths.bad_journal, paths.unread) if (lines := _lines(file))}
    if not aside:
        return Finding(CheckStatus.OK, "no damaged lines found")
    files = " and ".join(map(str, aside))
    advice = f"check the disk and its file system; {files} has the lines, and you may delete it"
    return Finding(CheckStatus.WARN, f"{sum(aside.values())} damaged lines were set aside", advice)


def _lines(file: Path) -> int:
    with suppress(OSError):
        return len(file.read_bytes().splitlines())
    return 0


def address(settings: config.Settings) -> Finding:
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return Finding(CheckStatus.OK, f"{host}:{port} is free")
    except OSError as error:
        if error.errno == errno.EADDRINUSE and _turnout_answers(host, port):
            return Finding(CheckStatus.OK, f"{host}:{port}: a Turnout service answers")
        advice = "choose another address with --host and --port, TURNOUT_HOST and TURNOUT_PORT, or [server]"
        return Finding(CheckStatus.WARN, f"{host}:{port}: {error.strerror}", advice)


def job_users(settings: config.Settings, uids: range) -> Finding:
    """`uids`: for the jobs of a service that runs as root."""
    if os.geteuid() != 0:
        return Finding(CheckStatus.OK, f"jobs run as {pwd.getpwuid(os.geteuid()).pw_name}, like the service")
    name = settings.engines.local.user
    jobs = f"each project's jobs run with its own uid ({uids.start + 1} to {uids.stop - 1})"
    with suppress(KeyError):
        uid = pwd.getpwnam(name).pw_uid
        return Finding(CheckStatus.OK, f"{jobs}, the supervisor as {name} (uid {uid})")
    if shutil.which("useradd"):
        return Finding(CheckStatus.OK, f"{jobs}, the supervisor as {name} (the first start will create it)")
    advice = f"create the user {name}, or choose another one with [engines.local] user"
    return Finding(
        CheckStatus.MISSING, f"there is no user {name}, and no useradd to create it", advice, needed=True
    )


def bubblewrap(settings: config.Settings) -> Finding:
    wanted = settings.engines.local.sandbox
    program = shutil.which("bwrap")
    if not program:
        return Finding(
            CheckStatus.MISSING,
            "not installed: jobs run without a sandbox" if wanted != "bubblewrap" else "not installed",
            "install it (Debian: apt-get install bubblewrap) to isolate jobs from each other and from your files",
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
        found = f"{version} ({program}), works"
        if platform.machine() not in ("x86_64", "aarch64"):
            return Finding(
                CheckStatus.OK, f"{found}; there is no system call filter for {platform.machine()}"
            )
        return Finding(CheckStatus.OK, found)
    why = " ".join(trial.stderr.split()) or f"exit code {trial.returncode}"
    advice = (
        "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, or an AppArmor profile for bwrap)"
    )
    return Finding(
        CheckStatus.WARN,
        f"{version} ({program}), does not work: {why}",
        advice,
        needed=wanted == "bubblewrap",
    )


def cgroups(_: config.Settings) -> Finding:
    own_groups = _own_groups()
    if not own_groups:
        return Finding(
            CheckStatus.MISSING,
            "no cpu, memory or pids controller",
            "limits are rlimits and CPU affinity instead",
        )
    version = "version 2" if (CGROUPS / "cgroup.controllers").exists() else "version 1"
    writable = sorted(name for name, group in own_groups.items() if _can_create_group(group))
    found = (
        f"{version}, controllers {', '.join(sorted(own_groups))}; writable: {', '.join(writable) or 'none'}"
    )
    if set(writable) >= set(CONTROLLERS):
        return Finding(CheckStatus.OK, found)
    advice = "without them, limits are rlimits and CPU affinity; run as root, or let systemd delegate (Delegate=yes)"
    return Finding(CheckStatus.WARN, found, advice)


def gpus(settings: config.Settings) -> Finding:
    simulated = settings.engines.local.gpus
    if simulated != "auto":
        return Finding(CheckStatus.OK, f"{simulated} simulated, as set by [engines.local] gpus")
    try:
        names = _nvidia()
    except Exception as error:  # noqa: BLE001 - the driver's library has an error class for each of its states
        return Finding(
            CheckStatus.MISSING,
            f"none ({error})",
            "jobs that need a GPU are refused; TURNOUT_GPUS=<n> simulates some",
        )
    return Finding(CheckStatus.OK, f"{len(names)}: {', '.join(names)}")


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
                return Finding(CheckStatus.OK, f"{_output([program, '--version'])}, works")
        broken.append(f"{name} ({program}) does not answer")
    if broken:
        return Finding(CheckStatus.WARN, "; ".join(broken), "not needed: images run in the sandbox")
    return Finding(CheckStatus.MISSING, "neither podman nor docker", "not needed: images run in the sandbox")


def cluster(name: str, settings: config.Settings) -> Finding:
    """A cluster beyond this machine. Only the service can check it, and only for the root key."""
    wanted = settings.remote_clusters()[name]
    if wanted.engine == "ray":
        first, where = wanted.python, f" at {wanted.address}" if wanted.address else ""
    else:
        first = wanted.command[0] if wanted.command else "sbatch"
        where = f", partition {wanted.partition}" if wanted.partition else ""
    advice = f"to check it while the service runs: turnout cluster check {name}"
    if shutil.which(first) is None:
        found = f"{wanted.engine}{where}: {first} is not on the PATH"
        return Finding(CheckStatus.WARN, found, f"its jobs wait until {first} is there; {advice}")
    results = _results_of_service(name, wanted.engine)
    if not results:
        return Finding(CheckStatus.OK, f"{wanted.engine}{where}; not checked here", advice)
    wrong = [f"{one['what']}: {one['detail']}" for one in results if not one["ok"]]
    if wrong:
        return Finding(CheckStatus.WARN, f"{wanted.engine}{where}; {'; '.join(wrong)}", advice)
    passed = ", ".join(one["what"] for one in results)
    return Finding(CheckStatus.OK, f"{wanted.engine}{where}; checked by the service: {passed}")


def _results_of_service(name: str, engine: str) -> list[dict[str, Any]]:
    """What `turnout cluster check` says, or nothing if no service with this cluster answers, or not for this key."""
    try:
        client = connect()
        known = client.get("clusters", within=3)["clusters"]
        if not any((one["name"], one["engine"]) == (name, engine) for one in known):
            return []
        return list(client.check_cluster(name))
    except TurnoutError:
        return []


def endpoint(_: config.Settings) -> Finding:
    """The service and the key that `turnout` and `tictl` use."""
    try:
        client, login = connect(), stored()
        who = client.get("whoami", within=3)
        clusters = client.get("clusters", within=3)["clusters"]
    except EndpointUnreachable as error:
        if not config.client_endpoint() and not stored().endpoint:
            return Finding(CheckStatus.OK, "no service at the default endpoint; `turnout serve` starts one")
        return Finding(CheckStatus.WARN, "no answer", error.message)
    except TurnoutError as error:
        return Finding(CheckStatus.WARN, "it cannot be used", error.message)
    named = (
        "TURNOUT_ENDPOINT" if config.client_endpoint() else "the login" if login.endpoint else "the default"
    )
    key = f"key {who['key']} of project {who['project']}" + (", root" if who["root"] else "")
    away = [f"{cluster['name']}: {cluster['trouble']}" for cluster in clusters if cluster.get("trouble")]
    if away:
        return Finding(
            CheckStatus.WARN, f"{client.endpoint} answers, but not all clusters start jobs", "; ".join(away)
        )
    failing = _failing_webhooks(client) if who["root"] else []
    if failing:
        found = f"{client.endpoint} answers, but webhooks do not: {'; '.join(failing)}"
        return Finding(CheckStatus.WARN, found, "`turnout webhooks` shows what waits for them")
    return Finding(CheckStatus.OK, f"{client.endpoint} ({named}) answers; {key}")


def _failing_webhooks(client: Client) -> list[str]:
    found = client.get("webhooks", within=3)["webhooks"]
    return [f"{hook['name']}: {hook['trouble']}" for hook in found if hook["trouble"]]


def _turnout_answers(host: str, port: int) -> bool:
    """Many programs answer /healthz, so this also looks for Turnout's header."""
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    connection = http.client.HTTPConnection(loopback.get(host, host), port, timeout=3)
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
        advice = "pip install 'turnout[postgres]', or leave [store] url out for SQLite"
        return Finding(CheckStatus.MISSING, "PostgreSQL, but psycopg is not installed", advice, needed=True)
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            version = connection.info.server_version
    except psycopg.Error as error:
        return Finding(
            CheckStatus.MISSING,
            f"PostgreSQL: {error}",
            "check that the server runs and that [store] url is right",
            needed=True,
        )
    return Finding(CheckStatus.OK, f"PostgreSQL {version // 10_000}.{version % 10_000}")


def _own_groups() -> dict[str, Path]:
    """Controller -> the directory of the group that this process is in."""
    groups: dict[str, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            unified = CGROUPS / path.lstrip("/")
            with suppress(OSError):
                available = (unified / "cgroup.controllers").read_text().split()
                groups |= {name: unified for name in available if name in CONTROLLERS}
        for name in controllers.split(","):
            mounted = CGROUPS / name
            own = mounted / path.lstrip("/")
            if name in CONTROLLERS and mounted.is_dir():
                groups[name] = own if own.is_dir() else mounted
    return groups


def _can_create_group(group: Path) -> bool:
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
