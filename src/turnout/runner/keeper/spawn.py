"""Making a replica's directory and its process."""

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Any

from .clone import RESET, Files, clone_into
from .mounts import furnish, open_source, show
from .replica import Replica
from .sealing import SealedLog
from .spares import BOX

Plan = dict[str, Any]
"""A `turnout.runner.plan.ReplicaPlan` as it comes over the socket, with the gang's `shared`."""

_ARGUMENTS, _STATUS, _PASSWD, _SPILL = 3, 4, 5, 6


class NotStarted(Exception):
    """The program could not be run: `code` is what a shell would have answered."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def link(directory: str, plan: Plan) -> None:
    """The links that a plan wants in the replica's directory. Raises OSError."""
    for name, target in plan.get("links", {}).items():
        with contextlib.suppress(FileExistsError):
            os.symlink(target, f"{directory}/{name}")


def spawn(replica: Replica, plan: Plan) -> int:
    """The new process's id. Raises NotStarted, or OSError if it is us who cannot."""
    assert replica.log
    cgroup = replica.slot.born_in if replica.slot else -1
    try:
        if replica.sandboxed:
            return _in_sandbox(replica.directory, plan, replica.log.streams, cgroup)
        return _bare(plan, replica.log.streams, cgroup)
    finally:
        if isinstance(replica.log, SealedLog):
            replica.log.given()


def _bare(plan: Plan, streams: tuple[int, int], cgroup: int) -> int:
    argv: list[str] = plan["argv"]
    env = environment(plan)
    try:
        _enter(plan)
        program = _find(argv[0], env.get("PATH", ""))
        try:
            return _run(program, argv, env, _streams(*streams), cgroup)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a first line that names its interpreter: what execvp does.
            return _run("/bin/sh", ["/bin/sh", program, *argv[1:]], env, _streams(*streams), cgroup)
    except OSError as error:
        code = 127 if error.errno == errno.ENOENT else 126
        raise NotStarted(code, f"{argv[0]}: {_why(error)}") from None
    finally:
        os.chdir("/")


def _enter(plan: Plan) -> None:
    """The working directory. What a job has put into a mount may be a link, the way to the mount may not."""
    try:
        if "cwd_mount" not in plan:
            os.chdir(plan["cwd"])
            return
        root, parts = source = plan["shared"]["mounts"][plan["cwd_mount"]]
        mount = open_source(source)
        try:
            os.fchdir(mount)
        finally:
            os.close(mount)
        below = plan["cwd"][len(os.path.join(root, *parts)) :].lstrip("/")
        if below:
            os.chdir(below)
    except OSError as error:
        raise NotStarted(126, f"working directory {plan['cwd']}: {error.strerror}") from None


def _in_sandbox(directory: str, plan: Plan, streams: tuple[int, int], cgroup: int) -> int:
    shared, options = plan["shared"], plan["sandbox"]
    bwrap, _, common = shared["sandbox"].partition("\0")
    # Into a file and not into the environment: bubblewrap itself must not see the user's LD_PRELOAD.
    for name, value in environment(plan).items():
        options += ("--setenv", name, value)
    options += ("--ro-bind", f"{directory}/{BOX}/hosts", "/etc/hosts")
    if "passwd" in plan:
        options += ("--perms", "0644", "--ro-bind-data", str(_PASSWD), "/etc/passwd")
    argv = [bwrap, "--args", str(_ARGUMENTS), "--json-status-fd", str(_STATUS), "--", *plan["argv"]]
    marker = {"TURNOUT_REPLICA": plan["env"]["TURNOUT_REPLICA"]}
    files = _streams(*streams)
    with contextlib.ExitStack() as opened:

        def keep(number: int, fd: int) -> None:
            files[number] = fd
            opened.callback(os.close, fd)

        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        keep(_STATUS, os.open(f"{directory}/{BOX}/status", flags, 0o640))
        keep(_ARGUMENTS, _in_memory(common + "\0".join(options) + "\0"))
        _write(f"{directory}/{BOX}/hosts", shared["hosts"])
        if "passwd" in plan:
            keep(_PASSWD, _in_memory(plan["passwd"]))
        if "spill" in plan:
            keep(_SPILL, _in_memory("\0".join(plan["spill"])))
        if not shared["mounts"]:
            return _run(bwrap, argv, marker, files, cgroup)
        furnish(shared["stage"], len(shared["mounts"]))
        return _run(bwrap, argv, marker, files, cgroup, lambda: show(shared["mounts"], shared["stage"]))


def environment(plan: Plan) -> dict[str, str]:
    """All that the program is told."""
    maps: dict[str, str] = plan["shared"]["maps"]
    return plan["env"] | {name: maps[name] + task for name, task in plan.get("tasks", {}).items()}


def _write(path: str, text: str) -> None:
    """Over what is there: ext4 goes to the disk when a file is closed that was emptied and written again."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        size = os.write(fd, text.encode())
        if os.fstat(fd).st_size > size:
            os.ftruncate(fd, size)
    finally:
        os.close(fd)


def _in_memory(text: str) -> int:
    fd = os.memfd_create("turnout")
    os.write(fd, text.encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _streams(out: int, err: int) -> Files:
    return {1: out, 2: err}


def _run(
    program: str,
    argv: list[str],
    environment: dict[str, str],
    files: Files,
    cgroup: int,
    first: Callable[[], None] | None = None,
) -> int:
    if cgroup >= 0 or first:
        return clone_into(cgroup, program, argv, environment, files, first)
    actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, file, number) for number, file in files.items()]
    return os.posix_spawn(
        program, argv, environment, file_actions=actions, setsid=True, setsigmask=(), setsigdef=RESET
    )


def _find(program: str, path: str) -> str:
    """As execvp would: a name with a slash is a path, any other is looked up."""
    if "/" in program:
        return program
    denied = False
    for directory in path.split(":"):
        candidate = f"{directory or '.'}/{program}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
        denied = denied or os.path.isfile(candidate)
    raise OSError(
        errno.EACCES if denied else errno.ENOENT, os.strerror(errno.EACCES if denied else errno.ENOENT)
    )


def _why(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "no such program, or its interpreter is missing"
    return f"cannot be run: {error.strerror}"
