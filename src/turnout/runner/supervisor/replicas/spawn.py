"""Starts the process of a replica."""

import contextlib
import errno
import os
from typing import Any

from ..chaos import kill_point
from ..gang import Replica
from ..logs.sealed_log import SealedLog
from ..network.spawner import NetworkEntry
from ..recovery.journal import Journal
from . import podman_client, roots, seccomp, users
from .clone import RESET_SIGNALS, BeforeExec, Files, clone_into
from .mounts import bind_sources, make_mount_points, open_source
from .spares import BOX, PENDING, is_pending

Plan = dict[str, Any]
"""A `turnout.runner.plan.ReplicaPlan` as it comes over the socket, with the gang's `shared`."""

_ARGUMENTS_FD, STATUS_FD, _PASSWD_FD, _SPILL_FD, SECCOMP_FD = 3, 4, 5, 6, 7
_EMPTY = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags that empty a file. The open never waits, whatever a job has put there."""
_SECCOMP_OPTION = f"\0--seccomp\0{SECCOMP_FD}\0"


with open(podman_client.__file__, encoding="utf-8") as _file:
    PODMAN_CLIENT = _file.read()
"""The program that runs podman. It is read while the supervisor may still read everything."""


class NotStarted(Exception):
    """The program could not be run. `code` is the exit code that a shell would give."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def make_links(directory: str, plan: Plan, user: int) -> None:
    """Makes the links of the plan in the replica's directory. Raises OSError."""
    for name, target in plan.get("links", {}).items():
        with contextlib.suppress(FileExistsError), users.acting_as(user):
            os.symlink(target, f"{directory}/{name}")


def spawn(replica: Replica, plan: Plan, journal: Journal, network: NetworkEntry | None = None) -> int:
    """Returns the id of the new process. Raises NotStarted, or OSError if the supervisor cannot start anything.

    The journal says so first, so that a supervisor that takes over knows that the program may have run. `network` is
    the gang's own.
    """
    assert replica.log
    cgroup = replica.slot.clone_fd if replica.slot else -1
    try:
        if "notice" in plan and not replica.restarts:
            os.write(replica.log.streams[0], plan["notice"].encode() + b"\n")
        if replica.sandboxed:
            # Emptied before the journal line: what an earlier start left in it must not count for this one.
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with users.acting_as(replica.user):
                replica.status = os.open(f"{replica.directory}/{BOX}/status", flags, 0o640)
        else:
            replica.pending_file = is_pending(replica.directory)
        kill_point("supervisor.prepared")
        journal.append_or_raise(replica.starting_line)
        replica.starting = True
        kill_point("supervisor.starting")
        if replica.sandboxed:
            return _spawn_sandbox(replica, plan, replica.log.streams, cgroup, network)
        with users.spawning_as(replica.user):
            return _spawn_bare(replica, plan, replica.log.streams, cgroup)
    finally:
        if isinstance(replica.log, SealedLog):
            replica.log.close_streams()


def _spawn_bare(replica: Replica, plan: Plan, streams: tuple[int, int], cgroup: int) -> int:
    argv: list[str] = plan["argv"]
    env = environment(plan)
    emptied = f"{replica.directory}/{PENDING}" if replica.pending_file else ""
    try:
        _change_directory(plan)
        program = _find_program(argv[0], env.get("PATH", ""))
        try:
            return _run(program, argv, env, _streams(*streams), cgroup, emptied=emptied)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without an interpreter line: do what execvp does.
            shell = ["/bin/sh", program, *argv[1:]]
            return _run("/bin/sh", shell, env, _streams(*streams), cgroup, emptied=emptied)
    except OSError as error:
        raise _program_error(argv[0], error) from None
    finally:
        os.chdir("/")


def _change_directory(plan: Plan) -> None:
    """Changes to the working directory. Links inside a mount are followed, links on the way to a mount are not."""
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
        raise _no_working_directory(plan, error) from None


def _no_working_directory(plan: Plan, error: OSError) -> NotStarted:
    return NotStarted(126, f"working directory {plan['cwd']}: {error.strerror}")


def _program_error(program: str, error: OSError) -> NotStarted:
    return NotStarted(127 if error.errno == errno.ENOENT else 126, f"{program}: {_reason(error)}")


def _spawn_sandbox(
    replica: Replica,
    plan: Plan,
    streams: tuple[int, int],
    cgroup: int,
    network: NetworkEntry | None,
) -> int:
    directory, shared, options = replica.directory, plan["shared"], plan["sandbox"]
    user = replica.user
    layers: list[str] | None = shared["roots"][plan["root"]] if "root" in plan else None
    podman: list[str] = shared.get("podman", [])
    bwrap, _, common = shared["sandbox" if layers is None else "image_sandbox"].partition("\0")
    if layers is not None:
        options = ["--bind", roots.staged(shared["stage"]), "/", *common.split("\0")[:-1], *options]
        common = ""
    # In a file, not in the environment: bubblewrap itself must not see the user's LD_PRELOAD.
    for name, value in environment(plan).items():
        options += ("--setenv", name, value)
    options += ("--ro-bind", f"{directory}/{BOX}/hosts", "/etc/hosts")
    if "passwd" in plan:
        options += ("--perms", "0644", "--ro-bind-data", str(_PASSWD_FD), "/etc/passwd")
    argv = [bwrap, "--args", str(_ARGUMENTS_FD), "--json-status-fd", str(STATUS_FD), "--", *plan["argv"]]
    marker = {"TURNOUT_REPLICA": plan["env"]["TURNOUT_REPLICA"]}
    files = _streams(*streams)
    with contextlib.ExitStack() as opened:

        def pass_file(number: int, fd: int) -> None:
            files[number] = fd
            opened.callback(os.close, fd)

        with users.acting_as(user):
            _write(f"{directory}/{BOX}/hosts", shared["hosts"])
        files[STATUS_FD] = replica.status
        pass_file(_ARGUMENTS_FD, _in_memory(common + "\0".join(options) + "\0"))
        if _SECCOMP_OPTION in shared["sandbox"]:
            pass_file(SECCOMP_FD, seccomp.open_program())
        if "passwd" in plan:
            pass_file(_PASSWD_FD, _in_memory(plan["passwd"]))
        if "spill" in plan:
            pass_file(_SPILL_FD, _in_memory("\0".join(plan["spill"])))
        if shared["mounts"]:
            make_mount_points(shared["stage"], len(shared["mounts"]))
        if layers is not None:
            roots.make_mount_point(shared["stage"], roots.ROOT_MOUNT)
            roots.make_directories(directory, replica.restarts, user)
            if podman:
                roots.make_mount_point(shared["stage"], roots.PODMAN_MOUNT)
                bwrap, argv = podman[0], _podman_command(podman, replica.key, shared["stage"], plan["argv"])
            arguments = files[_ARGUMENTS_FD]
            enter = lambda: _enter_image(replica, shared, layers, options, arguments, network)  # noqa: E731
            return _run(bwrap, argv, marker, files, cgroup, enter)
        if not shared["mounts"]:
            if network is None:
                with users.spawning_as(user):
                    return _run(bwrap, argv, marker, files, cgroup)
            if replica.slot is None and (pid := network.spawn(argv, marker, files, user, replica.key)):
                replica.spawner = network.spawner
                return pid
        return _run(bwrap, argv, marker, files, cgroup, lambda: _before_exec(shared, user, network))


def _podman_command(tools: list[str], key: str, stage: str, argv: list[str]) -> list[str]:
    python, *programs = tools
    state = f"{stage}/{roots.PODMAN_MOUNT}"
    return [python, "-I", "-S", "-c", PODMAN_CLIENT, key, state, *programs, "--", *argv]


def _before_exec(shared: dict[str, Any], user: int, network: NetworkEntry | None) -> None:
    """In the child. Only the owner of the networks can enter one, so the child becomes the job's user after that."""
    mounts = shared["mounts"]
    if network:
        network.enter()
    users.become(user, users.SYS_ADMIN if network and mounts else 0)
    if mounts:
        bind_sources(mounts, shared["stage"], in_user_namespace=network is not None)


def _enter_image(
    replica: Replica,
    shared: dict[str, Any],
    layers: list[str],
    options: list[str],
    arguments: int,
    network: NetworkEntry | None,
) -> None:
    """In the child, as `_before_exec`. The kernel writes to the overlay's directories with the rights of now."""
    if network:
        network.enter()
    users.become(replica.user, users.MOUNT_OVERLAY if network else 0)
    bind_sources(shared["mounts"], shared["stage"], in_user_namespace=network is not None)
    roots.mount(layers, replica.directory, replica.restarts, shared["stage"])
    placed = roots.place(options, roots.staged(shared["stage"]))
    os.ftruncate(arguments, 0)
    os.pwrite(arguments, ("\0".join(placed) + "\0").encode(), 0)


def environment(plan: Plan) -> dict[str, str]:
    """The environment of the program."""
    maps: dict[str, str] = plan["shared"]["maps"]
    withheld: list[str] = plan.get("withheld", [])
    shared: dict[str, str] = plan["shared"].get("env", {})
    env = {name: text for name, text in shared.items() if name not in withheld} if withheld else shared
    return env | plan["env"] | {name: maps[name] + task for name, task in plan.get("tasks", {}).items()}


def _write(path: str, text: str) -> None:
    """Overwrites the file in place: ext4 flushes a file to disk when it was truncated, written and closed."""
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
    before_exec: BeforeExec | None = None,
    emptied: str = "",
) -> int:
    """`emptied`: a file that the child empties before its exec."""
    if cgroup >= 0 or before_exec:
        if emptied:
            before_exec = lambda: os.close(os.open(emptied, _EMPTY))  # noqa: E731
        return clone_into(cgroup, program, argv, environment, files, before_exec)
    # As descriptor 0, which the next action replaces.
    actions = [(os.POSIX_SPAWN_OPEN, 0, emptied, _EMPTY, 0)] if emptied else []
    actions += [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, file, number) for number, file in files.items()]
    return os.posix_spawn(
        program, argv, environment, file_actions=actions, setsid=True, setsigmask=(), setsigdef=RESET_SIGNALS
    )


def _find_program(program: str, path: str) -> str:
    """Like execvp: a name with a slash is a path, any other is looked up."""
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


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "no such program, or its interpreter is missing"
    return f"cannot be run: {error.strerror}"
