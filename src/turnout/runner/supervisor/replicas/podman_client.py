"""Runs `podman run` in the place of bubblewrap: it takes the same options, and writes the same status file.

The supervisor starts this text with `python -c`, because the user of a job may not be able to read Turnout's files.
Podman runs as that user, in namespaces of its own, and all that it stores is in a tmpfs there. So when the first
process of these namespaces ends, nothing of the container is left.

Arguments: python's own are followed by the replica that TURNOUT_REPLICA names, a mount point for the tmpfs, podman,
crun, conmon, catatonit, `--`, and the command line.
"""

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
from typing import NamedTuple

_ARGUMENTS, _STATUS = 3, 4
_NEW_MOUNTS, _NEW_USER, _NEW_PID = 0x20000, 0x10000000, 0x20000000
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_SET_DUMPABLE = 4
_CLONE3 = 435
_ENDED = "exit "
_RETRY_SECONDS = 0.02
_OUT = "/run/out"
"""`plan.STREAM_PIPES`."""
_WORDS = {
    "--bind": 2, "--ro-bind": 2, "--dev-bind": 2, "--symlink": 2, "--setenv": 2, "--tmpfs": 1, "--proc": 1,
    "--dir": 1, "--chdir": 1, "--perms": 1, "--hostname": 1, "--uid": 1, "--gid": 1, "--cap-drop": 1, "--seccomp": 1,
}  # fmt: skip
"""Bubblewrap's options, and the number of words after each."""


class Container(NamedTuple):
    root: str
    volumes: list[str]
    env: list[str]
    hostname: str
    uid: str
    gid: str
    cwd: str


class Tools(NamedTuple):
    podman: str
    crun: str
    conmon: str
    catatonit: str


def read(options: list[str]) -> Container:
    """What bubblewrap's options mean for a container."""
    root, volumes, env, single = "", list[str](), list[str](), dict[str, str]()
    words = iter(options)
    for option in words:
        values = [next(words) for _ in range(_WORDS.get(option, 0))]
        match option, values:
            case "--bind", [source, "/"]:
                root = source
            case "--dev-bind", [_, "/dev"]:
                pass
            case "--bind" | "--dev-bind", [source, target]:
                volumes.append(f"{source}:{target}")
            case "--ro-bind", [source, target]:
                volumes.append(f"{source}:{target}:ro")
                if target == _OUT:
                    # What a program opens there goes through pipes: the files behind it are append-only.
                    volumes += (f"{source}/{name}:/dev/{name}" for name in ("stdout", "stderr"))
            case "--setenv", [name, value]:
                env.append(f"{name}={value}")
            case _, [value]:
                single[option] = value
            case _:
                pass
    uid, gid = single.get("--uid", "0"), single.get("--gid", "0")
    return Container(root, volumes, env, single.get("--hostname", ""), uid, gid, single.get("--chdir", "/"))


def command(container: Container, tools: Tools, state: str, argv: list[str]) -> list[str]:
    """Variables are not in it, because everybody can read command lines: they are in `configuration`."""
    found = [tools.podman, "run", "--detach", "--rm", "--init", "--cgroups", "disabled", "--network", "host"]
    found += ("--conmon-pidfile", f"{state}/conmon.pid", "--pidfile", f"{state}/init.pid")
    found += ("--no-hosts", "--dns", "none", "--passwd=false", "--ulimit", "host", "--shm-size", "0")
    found += ("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--workdir", container.cwd)
    found += ("--uidmap", f"{container.uid}:0:1", "--gidmap", f"{container.gid}:0:1")
    found += ("--user", f"{container.uid}:{container.gid}")
    # In place of this machine's, which names its network interfaces.
    found += ("--tmpfs", "/sys:ro,size=0")
    found += ("--hostname", container.hostname) if container.hostname else ()
    for volume in container.volumes:
        found += ("--volume", volume)
    return [*found, "--rootfs", container.root, *argv]


def configuration(container: Container, tools: Tools, state: str) -> dict[str, str]:
    """Files that podman reads: their names and contents."""
    env = ", ".join(_toml(text) for text in container.env)
    containers = (
        f'[containers]\nenv = [{env}]\nlog_driver = "passthrough"\ninit_path = {_toml(tools.catatonit)}\n'
        f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\nlock_type = "file"\nruntime = "crun"\n'
        f"conmon_path = [{_toml(tools.conmon)}]\ninit_path = {_toml(tools.catatonit)}\n"
        f"tmp_dir = {_toml(state + '/tmp')}\nstatic_dir = {_toml(state + '/static')}\n"
        f"[engine.runtimes]\ncrun = [{_toml(tools.crun)}]\n"
    )
    storage = f'[storage]\ndriver = "vfs"\nrunroot = {_toml(state + "/run")}\ngraphroot = {_toml(state + "/graph")}\n'
    return {"containers.conf": containers, "storage.conf": storage}


def main(arguments: list[str]) -> int:
    replica, mount_point, *tools, _ = arguments[:7]
    with open(_ARGUMENTS) as file:
        container = read(file.read().split("\0")[:-1])
    uid, gid = os.getuid(), os.getgid()
    start_read, start_write = os.pipe()
    result_read, result_write = os.pipe()
    init = _clone()
    if not init:
        os.close(start_write)
        try:
            os.setsid()
            _become_root(uid, gid)
            os.read(start_read, 1)
            code = FirstProcess(container, Tools(*tools), mount_point, uid, replica).run(arguments[7:])
            os.write(result_write, b"" if code is None else f"{_ENDED}{code}".encode())
        except OSError as error:
            os.write(2, f"Error: {error}\n".encode())
        finally:
            os._exit(0)
    os.close(result_write)
    # As bubblewrap does: whoever reads the status knows the first process before any program runs.
    _write_status({"child-pid": init, "podman": 1})
    os.close(start_write)
    _, status = os.waitpid(init, 0)
    result = os.read(result_read, 100).decode()
    if result:
        code = int(result.removeprefix(_ENDED))
    elif os.WIFSIGNALED(status):
        code = 128 + os.WTERMSIG(status)
    else:
        return 1
    _write_status({"exit-code": code})
    return code


class FirstProcess:
    """Of the namespaces: everything else in them ends with it."""

    def __init__(self, container: Container, tools: Tools, state: str, uid: int, replica: str) -> None:
        self._container = container
        self._tools = tools
        self._state = state
        self._uid = uid
        self._replica = replica
        self._ended: dict[int, int] = {}
        """Exit codes of children."""
        self._stopping = False

    def run(self, argv: list[str]) -> int | None:
        """Returns the exit code of the program, as a shell has it; None: podman did not start it."""
        signals = {signal.SIGTERM, signal.SIGCHLD}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        self._prepare()
        # Kept in a variable: an object that nobody holds would reap the process.
        process = subprocess.Popen(
            command(self._container, self._tools, self._state, argv),
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            cwd="/",
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, signals),
        )
        podman = process.pid
        while True:
            if self._ended.get(podman):
                return None
            # The parent of the container. It ends with its exit code.
            conmon = self._pid_of("conmon") if podman in self._ended else 0
            if conmon in self._ended:
                return self._ended[conmon]
            if self._stopping and podman in self._ended:
                self._stopping = not self._terminate()
            found = signal.sigtimedwait(signals, _RETRY_SECONDS if self._stopping else 3600)
            if found and found.si_signo == signal.SIGTERM:
                self._stopping = True
            self._reap()

    def _prepare(self) -> None:
        _mount("proc", "/proc", _NOSUID | _NODEV | _NOEXEC)
        _mount("tmpfs", self._state, _NOSUID | _NODEV, "mode=700,size=64m")
        # Crun refuses a machine that has both versions of cgroups. The replica is in its cgroup already.
        _mount("tmpfs", "/sys/fs/cgroup", _NOSUID | _NODEV | _NOEXEC, "mode=755")
        for name, text in configuration(self._container, self._tools, self._state).items():
            with open(f"{self._state}/{name}", "w", encoding="utf-8") as file:
                file.write(text)

    def _environment(self) -> dict[str, str]:
        """Of podman. It runs in the user namespace that this program made."""
        return {
            "PATH": "/usr/bin:/usr/sbin:/bin:/sbin",
            "HOME": self._state,
            "XDG_RUNTIME_DIR": self._state,
            "CONTAINERS_CONF": f"{self._state}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{self._state}/storage.conf",
            "_CONTAINERS_USERNS_CONFIGURED": "done",
            "_CONTAINERS_ROOTLESS_UID": str(self._uid),
            "_CONTAINERS_ROOTLESS_GID": str(self._uid),
            "TURNOUT_REPLICA": self._replica,
        }

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            self._ended[pid] = code if code >= 0 else 128 - code

    def _pid_of(self, name: str) -> int:
        with open(f"{self._state}/{name}.pid") as file:
            return int(file.read())

    def _terminate(self) -> bool:
        """Sends TERM to the program and its process group, as it is without podman. False: it does not run yet."""
        init = self._pid_of("init")
        try:
            with open(f"/proc/{init}/task/{init}/children") as file:
                groups = {os.getpgid(int(child)) for child in file.read().split()}
            for group in groups:
                os.killpg(group, signal.SIGTERM)
                # A stopped process would not receive it.
                os.killpg(group, signal.SIGCONT)
        except (OSError, ValueError):
            # It has ended, or is about to.
            return True
        return bool(groups)


def _clone() -> int:
    """As fork; the child is in new namespaces. This process stays where it is, as the supervisor expects."""
    flags = _NEW_USER | _NEW_MOUNTS | _NEW_PID
    arguments = struct.pack("<11Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
    pid: int = _libc.syscall(_CLONE3, arguments, ctypes.c_size_t(len(arguments)))
    _check(pid)
    return pid


def _become_root(uid: int, gid: int) -> None:
    # Otherwise the supervisor could not read whose process this is.
    _check(_libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _mount(kind: str, target: str, flags: int, options: str = "") -> None:
    _check(_libc.mount(kind.encode(), target.encode(), kind.encode(), flags, options.encode()), target)


def _check(result: int, what: str = "namespaces") -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _write_status(fields: dict[str, int]) -> None:
    os.write(_STATUS, (json.dumps(fields) + "\n").encode())


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_libc = ctypes.PyDLL(None, use_errno=True)

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError as error:
        sys.exit(f"Error: {error}")
