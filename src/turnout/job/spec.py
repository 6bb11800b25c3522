"""What is to run: roles, their program and resources, mounts, and the rules for starting over and ending."""

from enum import StrEnum

import msgspec

from turnout.job.resources import Resources, Share


class WhenLeadSucceeds(StrEnum):
    """What happens to a role's replicas once the lead has succeeded."""

    END = "end"
    """They never end by themselves (parameter servers): end them at once."""
    FINISH = "finish"
    """They get `Policy.finish_seconds` to end by themselves."""


class Program(msgspec.Struct, frozen=True, omit_defaults=True):
    """The command line, and the runtime that it asks for (a name from a dialect's catalogue)."""

    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    runtime: str = ""
    wants: str = ""
    """What that runtime is in its cloud, for people: `TensorFlow 1.7.0 on Python 2.7`."""

    @property
    def argv(self) -> tuple[str, ...]:
        return self.command + self.args


class Role(msgspec.Struct, frozen=True, omit_defaults=True):
    """Replicas that are alike. Exactly one role of a spec leads: its replica 0 decides the outcome."""

    name: str
    program: Program
    replicas: int = 1
    resources: Resources = Resources()
    env: dict[str, str] = {}
    leads: bool = False
    when_lead_succeeds: WhenLeadSucceeds = WhenLeadSucceeds.FINISH
    task_type: str = ""
    """The role's name in TF_CONFIG and CLUSTER_SPEC where it differs from `name`."""


class Mount(msgspec.Struct, frozen=True, omit_defaults=True):
    """A directory that the program finds at `target`: `cos://bucket/dir`, `nfs://host/dir`, `file:///dir`.

    Where it has to be copied, what is there is fetched before the start, and what the program writes is brought back.
    """

    source: str
    target: str
    read_only: bool = False
    """An input: nothing is brought back."""
    fetch: bool = True
    """False: an output, which begins empty where it is a copy."""
    period: float = 30
    """Seconds between two times that changes are brought back; 0: at the end only."""


class LogExport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Each replica's log, both streams in the order of time, as a file in the directory `to`."""

    to: str
    name: str
    """With `{id}`, the job's UUID, and `{replica}`: `modelarts-job-{id}-{replica}.log`."""
    period: float = 30


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """`retry_on` holds values of Reason; a job starts over at most `retries` times, and only for those."""

    retries: int = 0
    retry_on: tuple[str, ...] = ()
    time_limit: float | None = None
    grace: float = 10
    finish_seconds: float = 30
    priority: int = 0


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    roles: tuple[Role, ...]
    mounts: tuple[Mount, ...] = ()
    working_dir: str = ""
    policy: Policy = Policy()
    logs: LogExport | None = None
    debug: bool = False
    """Keep the workspace after the end."""

    @property
    def saves(self) -> bool:
        """Whether something may have to be brought back at the end."""
        return self.logs is not None or any(not mount.read_only for mount in self.mounts)

    @property
    def lead(self) -> Role:
        return next(role for role in self.roles if role.leads)

    @property
    def share(self) -> Share:
        """What the whole gang counts for. Worked out anew each time."""
        total = Share(0, 0, 0)
        for role in self.roles:
            one = role.resources.share
            total += Share(one.cpu * role.replicas, one.memory * role.replicas, one.gpus * role.replicas)
        return total
