"""Bubblewrap: whether it works on this machine, and the options that are the same for every replica.

A replica's root directory has /usr and the links into it, a few files of /etc, and a /dev of harmless devices. Nothing
else is visible, unless it is listed here.
"""

import glob
import logging
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

from turnout.config import Settings
from turnout.engines.local.users.account import Account
from turnout.errors import Misconfigured
from turnout.runner.plan import STREAM_PIPES
from turnout.runner.supervisor.replicas import seccomp
from turnout.runner.supervisor.replicas.spawn import SECCOMP_FD

_log = logging.getLogger(__name__)

_NAMESPACES = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--new-session", "--clearenv",
    "--cap-drop", "ALL",
)  # fmt: skip
_ROOTS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": f"{STREAM_PIPES}/stdout",
    "stderr": f"{STREAM_PIPES}/stderr",
}
# Files that programs read and that reveal nothing: names of protocols, time zone, certificates, library paths.
_ETC = (
    "alternatives", "debian_version",
    "gai.conf", "host.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic",
    "mime.types", "nsswitch.conf", "os-release", "pki", "protocols", "python3", "python3.11", "rpc",
    "resolv.conf", "services", "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip


def write_resolver(etc: Path, text: str) -> None:
    """Writes the sandbox's /etc/resolv.conf."""
    _write(etc, "resolv.conf", text)


def write_users(etc: Path, accounts: Iterable[Account]) -> None:
    """Writes the sandbox's /etc/passwd and /etc/group. The names of users do not contain those of projects."""
    accounts = list(accounts)
    users = [f"{user.name}:x:{user.uid}:{user.gid}::/workspace:/bin/sh\n" for user in accounts]
    groups = [f"{user.name}:x:{user.gid}:\n" for user in accounts]
    root, nobody = (
        "root:x:0:0:root:/root:/usr/sbin/nologin\n",
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    )
    _write(etc, "passwd", "".join([root, *users, nobody]))
    _write(etc, "group", "".join(["root:x:0:\n", *groups, "nogroup:x:65534:\n"]))


def options(settings: Settings, account: Account, etc: Path) -> tuple[str, ...]:
    """Bubblewrap's command and options; empty: replicas run without a sandbox. Raises Misconfigured."""
    wanted = settings.engines.local.sandbox
    if wanted == "none":
        return ()
    bwrap = shutil.which("bwrap")
    if bwrap:
        _write_etc(etc)
        found = (bwrap, *_options(etc, _make_devices(etc.with_name(".dev"))))
        trouble = _try(found, account)
        if not trouble:
            return (*found, *_seccomp_options(settings))
    else:
        trouble = "it is not installed"
    if wanted == "bubblewrap":
        raise Misconfigured(
            f'[engines.local] sandbox = "bubblewrap", but bubblewrap does not work on this machine: {trouble}'
        )
    if not settings.loopback:
        raise Misconfigured(
            f"bubblewrap does not work on this machine ({trouble}). Without it jobs are not isolated, which is allowed "
            'on loopback only: install bubblewrap, listen on 127.0.0.1, or set [engines.local] sandbox = "none"'
        )
    _log.warning(
        "NO SANDBOX: bubblewrap does not work on this machine (%s). Jobs can read each other's files.",
        trouble,
    )
    return ()


def image_options(etc: Path, common: tuple[str, ...]) -> tuple[str, ...]:
    """The same for replicas in an image, after the option for its root directory. `common` is what `options` gave."""
    found = [*_NAMESPACES, "--proc", "/proc"]
    devices = etc.with_name(".dev")
    if str(devices) in common:
        found += ["--dev-bind", str(devices), "/dev"]
    else:
        found += ["--tmpfs", "/dev", *_each_device()]
    found += ["--perms", "1777", "--tmpfs", "/dev/shm", "--ro-bind", f"{etc}/resolv.conf", "/etc/resolv.conf"]
    seccomp_options = common[common.index("--seccomp") :] if "--seccomp" in common else ()
    return (common[0], *found, "--dir", "/tmp", *seccomp_options)


def _options(etc: Path, devices: Path | None) -> list[str]:
    found = [*_NAMESPACES, "--ro-bind", "/usr", "/usr"]
    for name in _ROOTS:
        path = Path("/", name)
        if path.is_symlink():
            found += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            found += ["--ro-bind", str(path), str(path)]
    found += ["--ro-bind", str(etc), "/etc", "--proc", "/proc"]
    if devices:
        found += ["--dev-bind", str(devices), "/dev"]
    else:
        found += _each_device()
    found += ["--perms", "1777", "--tmpfs", "/dev/shm", "--dir", "/run", "--dir", "/home", "--dir", "/var"]
    return [*found, "--symlink", "/tmp", "/var/tmp"]


def _each_device() -> list[str]:
    found: list[str] = []
    for name in _DEVICES:
        found += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, target in _DEVICE_LINKS.items():
        found += ["--symlink", target, f"/dev/{name}"]
    return found


def _seccomp_options(settings: Settings) -> tuple[str, ...]:
    """The supervisor passes the filter to bubblewrap as this descriptor."""
    if not settings.engines.local.seccomp:
        return ()
    if not seccomp.program():
        _log.warning("jobs may use all system calls: there is no seccomp filter for this kind of processor")
        return ()
    return ("--seccomp", str(SECCOMP_FD))


def _make_devices(directory: Path) -> Path | None:
    """Makes the sandbox's /dev as one directory, because each bind takes 0.1 ms. None: only root can do that."""
    try:
        directory.mkdir(mode=0o755, exist_ok=True)
        (directory / "shm").mkdir(mode=0o755, exist_ok=True)
        for name in _DEVICES:
            _make_device(directory / name, Path("/dev", name).stat().st_rdev)
        for name, target in _DEVICE_LINKS.items():
            if not (directory / name).is_symlink():
                (directory / name).symlink_to(target)
        for device in glob.glob("nvidia*", root_dir="/dev") + glob.glob("nvidia-caps/*", root_dir="/dev"):
            target = directory / device  # a replica's GPUs are bound here
            target.parent.mkdir(mode=0o755, exist_ok=True)
            if Path("/dev", device).is_char_device():
                target.touch()
        # On a file system that is mounted with nodev, devices exist but cannot be opened.
        with (directory / "null").open("wb"):
            return directory
    except OSError:
        return None


def _write(etc: Path, name: str, text: str) -> None:
    """Atomically, because running sandboxes use this directory."""
    path = etc / name
    if not path.is_file() or path.read_text() != text:
        fresh = etc.with_name(f"{etc.name}.{name}")
        fresh.write_text(text)
        fresh.chmod(0o644)
        fresh.rename(path)


def _make_device(path: Path, number: int) -> None:
    if not path.exists():
        os.mknod(path, stat.S_IFCHR, number)
        path.chmod(0o666)


def _write_etc(etc: Path) -> None:
    """Copies files of the host's /etc if they have changed: one directory to bind instead of thirty files."""
    stamp = etc.with_name(etc.name + ".stamp")
    seen = repr([_modified(Path("/etc", name)) for name in _ETC])
    if etc.is_dir() and stamp.is_file() and stamp.read_text() == seen:
        return
    fresh = etc.with_name(etc.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o755, parents=True)
    for name in _ETC:
        _copy(Path("/etc", name), fresh / name)
    (fresh / "hosts").write_text("127.0.0.1 localhost\n")
    fresh.chmod(0o755)
    shutil.rmtree(etc, ignore_errors=True)
    fresh.rename(etc)
    stamp.write_text(seen)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, target, symlinks=True, ignore_dangling_symlinks=True)
        elif source.exists():
            shutil.copy(source, target)
    except (OSError, shutil.Error) as error:
        _log.debug("%s is not in the sandbox: %s", source, error)


def _try(command: tuple[str, ...], account: Account) -> str:
    """Runs it as a job's user, the way the supervisor does. Returns why that fails; empty: it works."""
    # The supervisor makes a mount namespace around the sandbox (see `runner.supervisor.replicas.mounts`).
    outer = shutil.which("unshare")
    if outer:
        command = (outer, "--user", "--map-current-user", "--mount", *command)
    become = {"user": account.uid, "group": account.gid, "extra_groups": []} if account.other else {}
    try:
        done = subprocess.run(
            [*command, "--hostname", "x", "true"],
            capture_output=True,
            text=True,
            cwd="/",
            timeout=20,
            env={},
            **become,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() or f"it exited with code {done.returncode}" if done.returncode else ""
