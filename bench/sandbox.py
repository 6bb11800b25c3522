"""A sandbox like a job's, made by nobody but bwrap: the same binds, and its own `--dev` for the devices."""

import os
from collections.abc import Sequence
from pathlib import Path

from turnout import config
from turnout.engines.local import machine
from turnout.job import Attempt, Launch, Peer, Program, ReplicaName, Role, Spec
from turnout.paths import Paths
from turnout.runner.plan import plan_gang


def command(directory: Path, program: Sequence[str]) -> list[str]:
    """Makes what the sandbox binds below `directory`."""
    paths = Paths(directory)
    here = machine.prepare(paths, config.load(flags={"engines": {"local": {"sandbox": "bubblewrap"}}}))
    name = ReplicaName("master", 0)
    role = Role(name.role, Program(tuple(program)), leads=True)
    launch = Launch(Attempt(1, 1), "default", "tia", "bench", Spec((role,)))
    gang = (Peer(name, "bench-master-0", "127.64.0.1", (10_000, 10_001)),)
    whole = plan_gang(launch, gang, {"": here.runtimes.get("")}, [], here.layout, paths)
    plan = whole.replicas[0]
    hosts = _furnish(paths.replica(launch.attempt, name), whole.shared.hosts)
    if here.account.other:
        _give(paths.attempts, here.account.uid, here.account.gid)
    variables = [word for pair in plan.env.items() for word in ("--setenv", *pair)]
    # The keeper has bubblewrap tell of its child too.
    common = [*_usual(list(here.layout.sandbox)), "--json-status-fd", "2"]
    return [*common, *plan.sandbox, *variables, "--ro-bind", str(hosts), "/etc/hosts", *plan.argv]


def _usual(options: list[str]) -> list[str]:
    """With bwrap's own way to make /dev and /dev/shm; ours is one bind of a directory that was made before."""
    first, last = options.index("--dev-bind"), options.index("/dev/shm")
    # `--perms 1777 --tmpfs /dev/shm` ends what is about /dev.
    return [*options[:first], "--dev", "/dev", *options[last + 1 :]]


def _furnish(home: Path, hosts: str) -> Path:
    for name in ("work", "tmp", "box/out"):
        (home / name).mkdir(parents=True)
    file = home / "hosts"
    file.write_text(hosts)
    return file


def _give(directory: Path, uid: int, gid: int) -> None:
    for path in (directory, *directory.rglob("*")):
        os.chown(path, uid, gid)
