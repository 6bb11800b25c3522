"""A sandbox like a job's, but by bwrap alone: the same binds, and bwrap's own `--dev`."""

import os
from collections.abc import Sequence
from pathlib import Path

from turnout import config
from turnout.engines.local.machine import machine
from turnout.job import Attempt, Launch, Peer, Program, ReplicaName, Role, Spec
from turnout.paths import Paths
from turnout.runner.plan import plan_gang
from turnout.runner.supervisor.replicas import seccomp
from turnout.runner.supervisor.replicas.spawn import SECCOMP_FD


def command(directory: Path, program: Sequence[str]) -> list[str]:
    """Creates the files that the sandbox binds, below `directory`."""
    paths = Paths(directory)
    here = machine.prepare(paths, config.load(flags={"engines": {"local": {"sandbox": "bubblewrap"}}}))
    name = ReplicaName("master", 0)
    role = Role(name.role, Program(tuple(program)), leads=True)
    launch = Launch(Attempt(1, 1), "default", "tia", "bench", Spec((role,)))
    gang = (Peer(name, "bench-master-0", "127.64.0.1", (10_000, 10_001)),)
    whole = plan_gang(launch, gang, {"": here.runtimes.get("")}, [], here.layout, paths)
    plan = whole.replicas[0]
    hosts = _furnish(paths.replica(launch.attempt, name), whole.shared.hosts)
    who = here.accounts.supervisor
    if who.other:
        _give(paths.attempts, who.uid, who.gid)
    variables = [word for pair in plan.env.items() for word in ("--setenv", *pair)]
    # The supervisor has bubblewrap tell of its child too.
    common = [*_usual(list(here.layout.sandbox)), "--json-status-fd", "2"]
    return [*common, *plan.sandbox, *variables, "--ro-bind", str(hosts), "/etc/hosts", *plan.argv]


def files() -> dict[int, bytes]:
    """What the command reads, by descriptor."""
    return {SECCOMP_FD: seccomp.program()}


def _usual(options: list[str]) -> list[str]:
    """Uses bwrap's own /dev and /dev/shm. Turnout binds one directory that was created before."""
    first, last = options.index("--dev-bind"), options.index("/dev/shm")
    # The options for /dev end with `--perms 1777 --tmpfs /dev/shm`.
    return [*options[:first], "--dev", "/dev", *options[last + 1 :]]


def _furnish(home: Path, hosts: str) -> Path:
    for name in ("space/work", "space/tmp", "space/box/out"):
        (home / name).mkdir(parents=True)
    file = home / "hosts"
    file.write_text(hosts)
    return file


def _give(directory: Path, uid: int, gid: int) -> None:
    for path in (directory, *directory.rglob("*")):
        os.chown(path, uid, gid)
