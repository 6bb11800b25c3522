"""Which process listens on a port, for the error message "the port is taken"."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_LISTENING = "0A"
_SUPERVISOR = (b"supervisor.__main__", b"keeper.__main__")
"""The supervisor's module, and its name in older versions: a supervisor outlives an upgrade of the service."""
_DIRECTORY = b"/keeper"


class _PortHolder(NamedTuple):
    pid: int
    command: list[bytes]

    @property
    def data(self) -> str:
        """The data directory of a supervisor; empty: the process is not a supervisor."""
        if not any(name in word for word in self.command for name in _SUPERVISOR):
            return ""
        found = (word.removesuffix(_DIRECTORY) for word in self.command if word.endswith(_DIRECTORY))
        return os.fsdecode(next(found, b""))


def describe_holder(port: int) -> str:
    """Which process holds the port and how to free it. Only processes whose descriptors can be read are found."""
    processes = list(_processes_with(_listening_sockets(port)))
    supervisor = next((process for process in processes if process.data), None)
    others = [process for process in processes if not process.data]
    if supervisor and others:
        return f" by the turnout serve (process {others[0].pid}) whose data directory is {supervisor.data}: stop it"
    if supervisor:
        return (
            f" by the supervisor (process {supervisor.pid}) of the data directory {supervisor.data}, "
            f"which holds it for the next service while its jobs run: use turnout serve --data {supervisor.data}"
        )
    if others:
        return f" by process {others[0].pid} ({_name(others[0])}): stop it"
    return ", perhaps by another turnout serve: stop it"


def _listening_sockets(port: int) -> set[str]:
    """As /proc spells them: `socket:[inode]`."""
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
                if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{inode}]")
    return found


def _processes_with(sockets: set[str]) -> Iterator[_PortHolder]:
    for name in filter(str.isdecimal, os.listdir("/proc") if sockets else ()):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if any(_link(f"/proc/{name}/fd/{fd}") in sockets for fd in os.listdir(f"/proc/{name}/fd")):
                yield _PortHolder(int(name), Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"))


def _link(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return ""


def _name(process: _PortHolder) -> str:
    return os.fsdecode(process.command[0]).rpartition("/")[2]
