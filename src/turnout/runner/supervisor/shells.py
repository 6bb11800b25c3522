"""Shells in a running replica: in its namespaces and its cgroup, ended together with it.

Until its exec, the process that becomes the shell is a copy of the supervisor that is already inside the sandbox. So it
is not dumpable, and it imports nothing and looks up no name once it is inside.
"""

import contextlib
import ctypes
import fcntl
import os
import termios
import time
from collections.abc import Callable

from . import procfs
from .channel import Message
from .gang import Replica, SandboxStatus
from .loop import Loop
from .network.networks import Networks
from .procfs import Exit
from .replicas import seccomp, users
from .replicas.clone import clone_into
from .replicas.limits import InheritedLimits
from .replicas.spawn import environment

_SHELLS = (("/bin/bash", "bash"), ("/bin/sh", "sh"))
_NEW_MOUNTS, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PID = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000
_NEW_NET = 0x40000000
_ALL = _NEW_MOUNTS | _NEW_UTS | _NEW_IPC | _NEW_USER | _NEW_PID
_SET_DUMPABLE, _CAPBSET_DROP, _NO_NEW_PRIVS, _CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 4, 24, 38, 47, 4
_MOST_CAPABILITIES = 64
_RETRY_SECONDS, _RETRIES = 0.02, 100
_ENVIRON_READS, _ENVIRON_PAUSE = 20, 0.001
_HANG_UP_AGAIN = (0.1, 1, 5)
"""Seconds between the repeated HUPs to processes that outlive their shell."""
_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: see `clone`
# Looked up here, before a child is inside a sandbox.
_prctl, _setns = _libc.prctl, _libc.setns


_CODE = ctypes.create_string_buffer(seccomp.program())

Watch = Callable[[int, Callable[[Exit], None]], None]


class NoShell(Exception):
    """No shell can be opened; the message says why."""


class NotReady(NoShell):
    """The sandbox is not set up yet."""


class Shells:
    """`watch` takes a process id and a callback for its exit; `send` takes a message to the service."""

    def __init__(
        self,
        loop: Loop,
        limits: InheritedLimits,
        networks: Networks,
        watch: Watch,
        send: Callable[[Message], None],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._networks = networks
        self._watch = watch
        self._send = send

    def open(self, number: int, tty: str, replica: Replica | None, retries: int = _RETRIES) -> None:
        """Opens a shell on the terminal `tty`. The service learns that it is open or why not, and how it ended."""
        try:
            if replica is None:
                raise NoShell("it is not running")
            pid = _start(replica, tty, self._limits, self._networks.user_namespace_entry(replica.gang))
        except NotReady as error:
            if retries:
                self._loop.call_later(_RETRY_SECONDS, lambda: self.open(number, tty, replica, retries - 1))
            else:
                self._send({"shell": [number, None, str(error)]})
        except (NoShell, OSError) as error:
            self._send({"shell": [number, None, str(error)]})
        else:
            self._watch(pid, lambda exit: self._ended(number, pid, exit))
            self._send({"shell": [number, None, ""]})

    def _ended(self, number: int, pid: int, exit: Exit) -> None:
        self._send({"shell": [number, _code(exit), ""]})
        self._hang_up(procfs.session(pid), _HANG_UP_AGAIN)

    def _hang_up(self, members: list[tuple[int, int]], again: tuple[float, ...]) -> None:
        """Sends HUP to the processes that the shell left behind, some of them several times.

        The kernel has sent HUP when the terminal went away. But a process that was still a copy of the shell then, just
        before its exec, handled the signal as the shell does, and the new program never saw it.
        """
        left = procfs.hang_up(members)
        if left and again:
            self._loop.call_later(again[0], lambda: self._hang_up(left, again[1:]))


def _start(replica: Replica, tty: str, limits: InheritedLimits, enter: Callable[[], None]) -> int:
    target, user = _program(replica), replica.user
    plan = replica.plan or {"processes": 0, "env": {}}
    env = environment(replica.plan) if replica.plan else _environment(target)
    env = {"PS1": rf"\u@{replica.name}:\w\$ "} | env | {"TERM": "xterm-256color"}
    with contextlib.ExitStack() as opened:

        def keep(fd: int) -> int:
            opened.callback(os.close, fd)
            return fd

        pidfd = keep(os.pidfd_open(target))
        if procfs.marker(target) not in ("", replica.key):
            raise NoShell(f"{replica.name} has just ended")
        with users.acting_as(user):
            terminal = keep(os.open(tty, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        with procfs.access_to(target):
            cwd = keep(os.open(f"/proc/{target}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        pid_read, pid_write = map(keep, os.pipe2(os.O_CLOEXEC))
        namespaces = pidfd if replica.sandboxed else -1
        namespace_types = _ALL | _NEW_NET if replica.gang.network else _ALL
        cgroup = replica.slot.clone_fd if replica.slot else -1
        code = _CODE if _has_seccomp(target) else None

        def before_exec() -> None:
            _prctl(_SET_DUMPABLE, 0, 0, 0, 0)
            enter()
            # SYS_ADMIN in the user namespace of the networks is needed to enter one of them.
            users.become(user, users.SYS_ADMIN if replica.gang.network else 0)
            _exec_shell(namespaces, namespace_types, cwd, terminal, pid_write, env, code)

        with limits.applied(plan, replica.slot):
            parent = clone_into(cgroup, "", [], {}, {}, before_exec)
        os.waitid(os.P_PID, parent, os.WEXITED)
        return int(os.read(pid_read, 32))


def _program(replica: Replica) -> int:
    """The process of the user's program. In a sandbox it is the oldest child of the first process."""
    if replica.ended or replica.exit or not replica.pid:
        raise NoShell(f"{replica.name} is not running")
    if not replica.sandboxed:
        return replica.pid
    status = SandboxStatus(replica.status)
    init_pid = status.init_pid
    if init_pid is None or procfs.marker(init_pid) != replica.key:
        raise NotReady(f"{replica.name} has just started; try again in a moment")
    if status.podman:
        init_pid = procfs.init_of_container(init_pid)
    born = [(procfs.start_time(pid) or 0, pid) for pid in procfs.children(init_pid)] if init_pid else []
    if not born:
        raise NotReady(f"{replica.name} has just started; try again in a moment")
    return min(born)[1]


def _environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with, for a replica that an earlier supervisor started."""
    for _ in range(_ENVIRON_READS):
        pairs = (entry.partition(b"=") for entry in procfs.environment(pid).split(b"\0"))
        if found := {
            os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if name and equals
        }:
            return found
        # It is empty, or the process is in the middle of an exec.
        time.sleep(_ENVIRON_PAUSE)
    return {}


def _has_seccomp(pid: int) -> bool:
    """Whether the program has a seccomp filter: the shell gets the same."""
    with open(f"/proc/{pid}/status") as file:
        return any(line.split() == ["Seccomp:", "2"] for line in file)


def _code(exit: Exit) -> int:
    return 128 + exit.signal if exit.signal is not None else exit.code or 0


# In the child.


def _exec_shell(
    pidfd: int,
    namespace_types: int,
    cwd: int,
    terminal: int,
    pid_write: int,
    env: dict[str, str],
    code: seccomp.Code | None,
) -> None:
    """Replaces the process by the shell, or raises OSError."""
    if pidfd >= 0 and _setns(pidfd, namespace_types) < 0:
        raise OSError(ctypes.get_errno(), "namespaces")
    # Only a child enters the new pid namespace. This process exits, and the supervisor becomes the parent of the shell.
    shell = os.fork()
    if shell:
        os.write(pid_write, str(shell).encode())
        os._exit(0)
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for number in (0, 1, 2):
        os.dup2(terminal, number)
    os.fchdir(cwd)
    if pidfd >= 0:
        _give_up_privileges()
    if code:
        seccomp.install(code)
    for path, name in _SHELLS:
        if os.access(path, os.X_OK):
            os.execve(path, [name], env)
    raise FileNotFoundError(2, "neither bash nor sh")


def _give_up_privileges() -> None:
    """Entering a user namespace gives all capabilities in it. The program has none, so the shell must have none."""
    for capability in range(_MOST_CAPABILITIES):
        _prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    _prctl(_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    _prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
