"""Shells that people open in a replica: beside its program, in its namespaces and cgroup, and ended with it.

The process that becomes the shell is a copy of the keeper until its exec, and it is already in the sandbox then. So it
cannot be looked into (it is not dumpable), and nothing is imported or looked up by name once it is in there.
"""

import contextlib
import ctypes
import fcntl
import os
import termios
import time
from collections.abc import Callable

from . import processes
from .channel import Message
from .clone import clone_into
from .limits import Limits
from .loop import Loop
from .processes import Exit
from .replica import Replica, Status
from .spawn import environment

_SHELLS = (("/bin/bash", "bash"), ("/bin/sh", "sh"))
_NEW_MOUNTS, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PID = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000
_ALL = _NEW_MOUNTS | _NEW_UTS | _NEW_IPC | _NEW_USER | _NEW_PID
_SET_DUMPABLE, _CAPBSET_DROP, _NO_NEW_PRIVS, _CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 4, 24, 38, 47, 4
_MOST_CAPABILITIES = 64
_SOON, _PATIENCE = 0.02, 100
_LOOKS, _MOMENT = 20, 0.001
_AGAIN = (0.1, 1, 5)
"""Seconds from one time that those are told who are left when a shell has ended, to the next."""
_libc = ctypes.PyDLL(None, use_errno=True)  # see `clone`
# Looked up here, and not in the sandbox.
_prctl, _setns = _libc.prctl, _libc.setns


Watch = Callable[[int, Callable[[Exit], None]], None]


class Closed(Exception):
    """No shell can be opened there; the message says why."""


class TooEarly(Closed):
    """The sandbox is still being made."""


class Shells:
    """`watch` is told of a process and whom to call with how it ended; `send` takes a message to the service."""

    def __init__(self, loop: Loop, limits: Limits, watch: Watch, send: Callable[[Message], None]) -> None:
        self._loop = loop
        self._limits = limits
        self._watch = watch
        self._send = send

    def open(self, number: int, tty: str, replica: Replica | None, patience: int = _PATIENCE) -> None:
        """On the terminal `tty`. The service is told that it is open, or why not, and how it ended."""
        try:
            if replica is None:
                raise Closed("it is not running")
            pid = _start(replica, tty, self._limits)
        except TooEarly as error:
            if patience:
                self._loop.later(_SOON, lambda: self.open(number, tty, replica, patience - 1))
            else:
                self._send({"shell": [number, None, str(error)]})
        except (Closed, OSError) as error:
            self._send({"shell": [number, None, str(error)]})
        else:
            self._watch(pid, lambda exit: self._ended(number, pid, exit))
            self._send({"shell": [number, None, ""]})

    def _ended(self, number: int, pid: int, exit: Exit) -> None:
        self._send({"shell": [number, _code(exit), ""]})
        self._hang_up(processes.session(pid), _AGAIN)

    def _hang_up(self, members: list[tuple[int, int]], again: tuple[float, ...]) -> None:
        """The kernel has told them that their terminal is gone. But who was still a copy of the shell then, about to
        become another program, took it as the shell does, and forgot it.
        """
        left = processes.hang_up(members)
        if left and again:
            self._loop.later(again[0], lambda: self._hang_up(left, again[1:]))


def _start(replica: Replica, tty: str, limits: Limits) -> int:
    target = _program(replica)
    plan = replica.plan or {"processes": 0, "env": {}}
    env = environment(replica.plan) if replica.plan else _environment(target)
    env = {"PS1": rf"\u@{replica.name}:\w\$ "} | env | {"TERM": "xterm-256color"}
    with contextlib.ExitStack() as opened:

        def keep(fd: int) -> int:
            opened.callback(os.close, fd)
            return fd

        pidfd = keep(os.pidfd_open(target))
        if processes.marker(target) not in ("", replica.key):
            raise Closed(f"{replica.name} has just ended")
        terminal = keep(os.open(tty, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        cwd = keep(os.open(f"/proc/{target}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        told, tell = map(keep, os.pipe2(os.O_CLOEXEC))
        namespaces = pidfd if replica.sandboxed else -1
        cgroup = replica.slot.born_in if replica.slot else -1
        with limits.around(plan, replica.slot):
            parent = clone_into(cgroup, "", [], {}, {}, lambda: _become(namespaces, cwd, terminal, tell, env))
        os.waitid(os.P_PID, parent, os.WEXITED)
        return int(os.read(told, 32))


def _program(replica: Replica) -> int:
    """The process that is the user's program. In a sandbox it is the first child of the first process."""
    if replica.ended or replica.exit or not replica.pid:
        raise Closed(f"{replica.name} is not running")
    if not replica.sandboxed:
        return replica.pid
    inner = Status(replica.directory).inner
    if inner is None or processes.marker(inner) != replica.key:
        raise TooEarly(f"{replica.name} has just started; try again")
    born = [(processes.start_time(pid) or 0, pid) for pid in processes.children(inner)]
    if not born:
        raise TooEarly(f"{replica.name} has just started; try again")
    return min(born)[1]


def _environment(pid: int) -> dict[str, str]:
    """What it was started with: for one that an earlier keeper started."""
    for _ in range(_LOOKS):
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = (entry.partition(b"=") for entry in file.read().split(b"\0"))
        if found := {
            os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if name and equals
        }:
            return found
        # It has none, or is just becoming another program.
        time.sleep(_MOMENT)
    return {}


def _code(exit: Exit) -> int:
    return 128 + exit.signal if exit.signal is not None else exit.code or 0


# In the child.


def _become(pidfd: int, cwd: int, terminal: int, tell: int, env: dict[str, str]) -> None:
    """Raises OSError, or never returns."""
    _prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    if pidfd >= 0 and _setns(pidfd, _ALL) < 0:
        raise OSError(ctypes.get_errno(), "namespaces")
    # Only a child is in another namespace of processes. We go, and the keeper becomes its parent.
    shell = os.fork()
    if shell:
        os.write(tell, str(shell).encode())
        os._exit(0)
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for number in (0, 1, 2):
        os.dup2(terminal, number)
    os.fchdir(cwd)
    if pidfd >= 0:
        _give_up_privileges()
    for path, name in _SHELLS:
        if os.access(path, os.X_OK):
            os.execve(path, [name], env)
    raise FileNotFoundError(2, "neither bash nor sh")


def _give_up_privileges() -> None:
    """Who enters a namespace has all capabilities in it, and the program in there has none."""
    for capability in range(_MOST_CAPABILITIES):
        _prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    _prctl(_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    _prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
