"""Bubblewrap: whether it works here, and the part of its options that is the same for every replica.

The root that a replica sees is built up from nothing: /usr and the links into it, a few files of /etc, a /dev of
harmless devices. What is not named here is not there.
"""

import glob
import logging
import os
import shutil
import stat
import subprocess
from pathlib import Path

from turnout.config import Settings
from turnout.engines.local.account import Account, group_name
from turnout.errors import Misconfigured
from turnout.runner.plan import OUTLETS

_log = logging.getLogger(__name__)

_ROOTS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": f"{OUTLETS}/stdout",
    "stderr": f"{OUTLETS}/stderr",
}
# What programs look into and nobody minds: names of protocols, time zone, certificates, where libraries lie.
_ETC = (
    "alternatives", "debian_version",
    "gai.conf", "host.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic",
    "mime.types", "nsswitch.conf", "os-release", "pki", "protocols", "python3", "python3.11", "rpc",
    "resolv.conf", "services", "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip


def options(settings: Settings, account: Account, etc: Path) -> tuple[str, ...]:
    """Bubblewrap and its options; empty when replicas run without a sandbox. Raises Misconfigured."""
    wanted = settings.engines.local.sandbox
    if wanted == "none":
        return ()
    bwrap = shutil.which("bwrap")
    if bwrap:
        _write_etc(etc, account)
        found = (bwrap, *_options(etc, _make_devices(etc.with_name(".dev"))))
        trouble = _try(found, account)
        if not trouble:
            return found
    else:
        trouble = "it is not installed"
    if wanted == "bubblewrap":
        raise Misconfigured(
            f'[engines.local] sandbox = "bubblewrap", but bubblewrap does not work here: {trouble}'
        )
    if not settings.loopback:
        raise Misconfigured(
            f"bubblewrap does not work here ({trouble}), and without it jobs are not kept apart, which is allowed on "
            'loopback only: install bubblewrap, listen on 127.0.0.1, or set [engines.local] sandbox = "none"'
        )
    _log.warning("NO SANDBOX: bubblewrap does not work here (%s). Jobs can read each other's files.", trouble)
    return ()


def _options(etc: Path, devices: Path | None) -> list[str]:
    found = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--new-session",
        "--clearenv",
    ]
    found += ["--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]
    for name in _ROOTS:
        place = Path("/", name)
        if place.is_symlink():
            found += ["--symlink", os.readlink(place), str(place)]
        elif place.is_dir():
            found += ["--ro-bind", str(place), str(place)]
    found += ["--ro-bind", str(etc), "/etc", "--proc", "/proc"]
    if devices:
        found += ["--dev-bind", str(devices), "/dev"]
    else:
        for name in _DEVICES:
            found += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
        for name, target in _DEVICE_LINKS.items():
            found += ["--symlink", target, f"/dev/{name}"]
    found += ["--perms", "1777", "--tmpfs", "/dev/shm", "--dir", "/run", "--dir", "/home", "--dir", "/var"]
    return [*found, "--symlink", "/tmp", "/var/tmp"]


def _make_devices(directory: Path) -> Path | None:
    """The sandbox's /dev as one directory to bind: each bind takes bubblewrap 0.1 ms. Only root can make devices."""
    try:
        directory.mkdir(mode=0o755, exist_ok=True)
        (directory / "shm").mkdir(mode=0o755, exist_ok=True)
        for name in _DEVICES:
            _make_device(directory / name, Path("/dev", name).stat().st_rdev)
        for name, target in _DEVICE_LINKS.items():
            if not (directory / name).is_symlink():
                (directory / name).symlink_to(target)
        for device in glob.glob("nvidia*", root_dir="/dev") + glob.glob("nvidia-caps/*", root_dir="/dev"):
            place = directory / device  # where a replica's GPUs are bound
            place.parent.mkdir(mode=0o755, exist_ok=True)
            if Path("/dev", device).is_char_device():
                place.touch()
        # On a file system that is mounted without devices they exist, but cannot be opened.
        with (directory / "null").open("wb"):
            return directory
    except OSError:
        return None


def _make_device(path: Path, number: int) -> None:
    if not path.exists():
        os.mknod(path, stat.S_IFCHR, number)
        path.chmod(0o666)


def _write_etc(etc: Path, account: Account) -> None:
    """A copy: one directory to bind instead of thirty files. It is made anew when the host's has changed."""
    stamp = etc.with_name(etc.name + ".stamp")
    seen = repr((account, [_changed(Path("/etc", name)) for name in _ETC]))
    if etc.is_dir() and stamp.is_file() and stamp.read_text() == seen:
        return
    fresh = etc.with_name(etc.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o755, parents=True)
    for name in _ETC:
        _copy(Path("/etc", name), fresh / name)
    home = "/workspace"
    people = f"root:x:0:0:root:/root:/usr/sbin/nologin\n{account.name}:x:{account.uid}:{account.gid}::{home}:/bin/sh\n"
    (fresh / "passwd").write_text(people + "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
    (fresh / "group").write_text(f"root:x:0:\n{group_name(account.gid)}:x:{account.gid}:\nnogroup:x:65534:\n")
    (fresh / "hosts").write_text("127.0.0.1 localhost\n")
    fresh.chmod(0o755)
    shutil.rmtree(etc, ignore_errors=True)
    fresh.rename(etc)
    stamp.write_text(seen)


def _changed(path: Path) -> int:
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
    """Why it does not work; empty if it does. As the user that will run it, and as the keeper starts it."""
    # Mounts are shown in namespaces that the keeper makes itself (see `runner.keeper.mounts`).
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
    return done.stderr.strip() or f"it answered {done.returncode}" if done.returncode else ""
