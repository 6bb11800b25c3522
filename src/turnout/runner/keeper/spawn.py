"""Making a replica's directory and its process."""

import contextlib
import errno
import os
import resource
import signal
from collections.abc import Iterator
from typing import Any

from .cgroups import Slot

Plan = dict[str, Any]
"""A `turnout.runner.plan.ReplicaPlan` as it comes over the socket."""

_ARGUMENTS, _STATUS = 3, 4
# What the interpreter or we ignore; every other signal has its default action already.
_RESET = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT]


class NotStarted(Exception):
    """The program could not be run: `code` is what a shell would have answered."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def prepare(directory: str, plan: Plan) -> None:
    """`directory` is the replica's own. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o750)
    for name in plan["dirs"]:
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{directory}/{name}", 0o755)
    for name, target in plan.get("links", {}).items():
        with contextlib.suppress(FileExistsError):
            os.symlink(target, f"{directory}/{name}")
    for name, text in plan.get("files", {}).items():
        with open(f"{directory}/{name}", "w") as file:
            file.write(text)


def spawn(directory: str, plan: Plan, streams: tuple[int, int], slot: Slot | None, open_files: int) -> int:
    """The new process's id. Raises NotStarted, or OSError if it is us who cannot."""
    with _limited(plan, slot, open_files):
        if "sandbox" in plan:
            return _in_sandbox(directory, plan, streams)
        return _bare(plan, streams)


def _bare(plan: Plan, streams: tuple[int, int]) -> int:
    argv: list[str] = plan["argv"]
    try:
        os.chdir(plan["cwd"])
    except OSError as error:
        raise NotStarted(126, f"working directory {plan['cwd']}: {error.strerror}") from None
    try:
        program = _find(argv[0], plan["env"].get("PATH", ""))
        try:
            return _posix_spawn(program, argv, plan["env"], streams)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a first line that names its interpreter: what execvp does.
            return _posix_spawn("/bin/sh", ["/bin/sh", program, *argv[1:]], plan["env"], streams)
    except OSError as error:
        code = 127 if error.errno == errno.ENOENT else 126
        raise NotStarted(code, f"{argv[0]}: {_why(error)}") from None
    finally:
        os.chdir("/")


def _in_sandbox(directory: str, plan: Plan, streams: tuple[int, int]) -> int:
    arguments = os.memfd_create("arguments")
    status = os.open(directory + "/status", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    bwrap, *options = plan["sandbox"]
    # Into the file and not into the environment: bubblewrap itself must not see the user's LD_PRELOAD.
    for name, value in plan["env"].items():
        options += ("--setenv", name, value)
    try:
        os.write(arguments, "\0".join(options).encode() + b"\0")
        os.lseek(arguments, 0, os.SEEK_SET)
        argv = [bwrap, "--args", str(_ARGUMENTS), "--json-status-fd", str(_STATUS), "--", *plan["argv"]]
        marker = {"TURNOUT_REPLICA": plan["env"]["TURNOUT_REPLICA"]}
        passed = [(os.POSIX_SPAWN_DUP2, arguments, _ARGUMENTS), (os.POSIX_SPAWN_DUP2, status, _STATUS)]
        return _posix_spawn(bwrap, argv, marker, streams, passed)
    finally:
        os.close(arguments)
        os.close(status)


def _posix_spawn(
    program: str,
    argv: list[str],
    environment: dict[str, str],
    streams: tuple[int, int],
    passed: list[tuple[int, int, int]] | None = None,
) -> int:
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, streams[0], 1),
        (os.POSIX_SPAWN_DUP2, streams[1], 2),
        *(passed or ()),
    ]
    return os.posix_spawn(
        program, argv, environment, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_RESET
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


@contextlib.contextmanager
def _limited(plan: Plan, slot: Slot | None, open_files: int) -> Iterator[None]:
    """The child gets what we are limited to at that moment."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
