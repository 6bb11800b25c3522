"""Checks whether private networks work on this machine, by making one as the supervisor does. Exits with 1 and a reason
if not.
"""

import contextlib
import json
import os
import sys

from ..descriptors import receive
from ..replicas import seccomp, users
from ..replicas.clone import clone_into
from ..replicas.spawn import SECCOMP_FD
from . import namespaces
from .namespaces import Options
from .outside import outside_command

_LOW_NUMBERS = 16


def main(argv: list[str]) -> None:
    """`argv`: the networks' options, the supervisor's uid and gid (-1: keep the own user), the first uid of jobs and
    how many there are, and bubblewrap's command.
    """
    settings, sandbox = argv[0], argv[5:]
    uid, gid, first, count = map(int, argv[1:5])
    if uid >= 0:
        users.drop_root(uid, gid, range(first, first + count))
    options = Options.of(json.loads(settings))
    # Takes the low descriptor numbers, because child processes expect other files there.
    for _ in range(_LOW_NUMBERS):
        os.open(os.devnull, os.O_RDONLY)
    try:
        pid, connection, user = namespaces.fork_maker(-1, options)
    except OSError as error:
        sys.exit(f"no user namespace can be made: {error.strerror}")
    try:
        connection.send(namespaces.NEW)
        reply, files = receive(connection, 64)
        if not files:
            number = int(reply)
            sys.exit(f"no network can be made in a user namespace: {os.strerror(number)}")
        receive(connection, 64)
        if options.outside:
            os.close(files[1])
            _connect(options, user, files[0])
        inherited = {SECCOMP_FD: seccomp.open_program()} if "--seccomp" in sandbox else {}
        command = clone_into(-1, sandbox[0], sandbox, {}, inherited, lambda: _enter(user, files[0], first))
        if code := _exit_code(command):
            sys.exit(f"bubblewrap does not run in it: it exited with code {code}")
    except OSError as error:
        sys.exit(f"a private network cannot be used: {error}")
    finally:
        connection.close()
        _exit_code(pid)


def _enter(user: int, network: int, job: int) -> None:
    namespaces.enter(user, network)
    users.become(job if users.uids() else users.OWN)


def _connect(options: Options, user: int, namespace: int) -> None:
    ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
    output_read, output_write = os.pipe2(os.O_CLOEXEC)
    argv = outside_command(options, "turnout-network")
    before_exec = lambda: namespaces.keep_network_rights(user, options.tun)  # noqa: E731
    pid = clone_into(
        -1,
        options.outside,
        argv,
        {},
        {1: output_write, 2: output_write, 3: namespace, 4: ready_write},
        before_exec,
    )
    for fd in (ready_write, output_write):
        os.close(fd)
    ready = os.read(ready_read, 1)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 9)
    output = os.read(output_read, 4096).decode(errors="replace").strip().splitlines()
    _exit_code(pid)
    if not ready:
        sys.exit(
            f"{os.path.basename(options.outside)} does not work: {output[-1] if output else 'it printed no reason'}"
        )


def _exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
