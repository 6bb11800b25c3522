"""A job in words that the APIs have in common, from which each of them makes a document of its own."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from turnout.job.spec import Policy, Program, Role, Spec


class Portable(NamedTuple):
    spec: Spec
    """Its programs are the commands that the user wrote, without what an API puts around them. `working_dir` is where
    they start, empty if that does not matter."""
    notes: tuple[str, ...] = ()
    """What the job's own API does for it besides."""


class Converted(NamedTuple):
    document: dict[str, Any]
    """A request of another API that creates the job."""
    notes: tuple[str, ...]
    """What differs, in sentences."""


def moved(spec: Spec, targets: Mapping[str, str]) -> Spec:
    """The spec with its mounts at other targets, which its commands and variables then name."""
    changes = {old: new for old, new in targets.items() if old != new}
    if not changes:
        return spec
    longest_first = sorted(changes, key=len, reverse=True)
    named = re.compile(rf"(?<![\w/.])(?:{'|'.join(map(re.escape, longest_first))})(?![\w.-])")

    def text(value: str) -> str:
        return named.sub(lambda match: changes[match[0]], value)

    def words(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(text, values))

    def role(one: Role) -> Role:
        program = msgspec.structs.replace(
            one.program, command=words(one.program.command), args=words(one.program.args)
        )
        env = {name: text(value) for name, value in one.env.items()}
        return msgspec.structs.replace(one, program=program, env=env)

    mounts = (
        msgspec.structs.replace(mount, target=changes.get(mount.target, mount.target))
        for mount in spec.mounts
    )
    return msgspec.structs.replace(
        spec,
        roles=tuple(map(role, spec.roles)),
        mounts=tuple(mounts),
        working_dir=_moved_directory(text(spec.working_dir), changes),
    )


def _moved_directory(directory: str, changes: Mapping[str, str]) -> str:
    """Where a directory is that has a mount below it."""
    for old, new in changes.items():
        inside = old[len(directory) :]
        if directory and old.startswith(f"{directory}/") and new.endswith(inside):
            return new.removesuffix(inside)
    return directory


def started_in(directory: str, program: Program) -> Program:
    """The program, started in a directory; unchanged if it is empty."""
    if not directory:
        return program
    script = ("/bin/sh", "-c", 'cd "$0" && exec "$@"', directory)
    return msgspec.structs.replace(program, command=script + program.argv, args=())


def left_out(spec: Spec, api: str, has: frozenset[str]) -> list[str]:
    """A sentence about the parts of the job that the API has no fields for. `has`: the parts that it has."""
    notes = ["The search is left out: this runs its program once."] if spec.search else []
    missing = [name for name, found in _parts(spec).items() if found and name not in has]
    if not missing:
        return notes
    *others, last = missing
    named = f"{', '.join(others)} and {last}" if others else last
    return [*notes, f"{api} has no field for {named}, which {'are' if others else 'is'} left out."]


def _parts(spec: Spec) -> dict[str, bool]:
    policy = spec.policy
    return {
        "the time limit": policy.time_limit is not None,
        "the retries": bool(policy.retries or policy.in_place),
        "the priority": policy.priority > Policy().priority,
        "preemption": policy.preemptible,
        "the log export": spec.logs is not None,
        "the notification": spec.notify is not None,
        "shells": spec.opens_shells,
        "the program's own page": spec.program_page,
        "the encryption key": bool(spec.key),
    }
