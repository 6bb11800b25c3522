"""What is to run: roles, their program and resources, mounts, and the rules for starting over and ending."""

from enum import StrEnum

import msgspec

from turnout.job.resources import Resources, Share
from turnout.job.search import Search


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
    user: int | None = None
    """The user id that the program sees itself as, where there is a sandbox."""

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
    late: tuple[str, ...] = ()
    """Variables of `env` with references, `$(RANK)`, that `expand` resolves once the gang's map is known."""


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


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ended for one of these values of Reason starts over, at most so many times."""

    on: tuple[str, ...]
    times: int
    codes: tuple[int, ...] = ()
    """Only if the replica that decided it exited with one of these, 128 + n for signal n; empty: however it ended."""
    not_codes: tuple[int, ...] = ()
    """Not if it exited with one of these."""

    def covers(self, reason: str, code: int | None) -> bool:
        """Whether it speaks of an end of this kind, however often there has been one."""
        if reason not in self.on or code in self.not_codes:
            return False
        return not self.codes or code in self.codes


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who was preempted starts over; for all else there must be a retry left."""

    retries: tuple[Retry, ...] = ()
    in_place: Retry | None = None
    """Tried first: each replica that ended so starts again so many times, where it was, while the others go on."""
    time_limit: float | None = None
    """Seconds of running, in one attempt."""
    max_wait: float | None = None
    """Seconds in the queue before its first attempt, after which the job fails."""
    retry_wait: float | None = 1800
    """The same before an attempt that follows one that failed. None: as long as it takes."""
    hang_seconds: float | None = None
    """How long a whole gang may use no CPU time and do no I/O before it counts as hung."""
    grace: float = 10
    finish_seconds: float = 30
    priority: int = 1
    """Higher ones start first; 1 is what jobs have that do not say."""
    preemptible: bool = False
    """May be ended, and put back into the queue, for a job of higher priority."""
    preemptions: int | None = None
    """How often it is put back; the next time it fails. None: always."""


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    roles: tuple[Role, ...]
    mounts: tuple[Mount, ...] = ()
    scratch: tuple[str, ...] = ()
    """Directories that each replica has for itself, empty at first and gone with it; mounts may lie within."""
    working_dir: str = ""
    policy: Policy = Policy()
    logs: LogExport | None = None
    told: str = ""
    """A JSON object that TF_CONFIG and CLUSTER_SPEC show as `job`."""
    trial: str = ""
    """Which trial of a search this is, as TF_CONFIG and CLUSTER_SPEC show it in `task`."""
    debug: bool = False
    """Keep the workspace after the end, and open shells."""
    shell: bool = False
    """People may open shells in its replicas while they run."""
    dashboard: bool = False
    """The lead has a port of its own for a page that people may open while it runs."""
    key: str = ""
    """The key of the ring that protects what is kept of the job; empty: none does."""
    wrapped_key: str = ""
    """The job's own data key, wrapped by `key`, which is made when the job is created."""
    search: Search | None = None
    """The job tries parameters: it has no gang of its own, its trials are jobs."""

    @property
    def saves(self) -> bool:
        """Whether something may have to be brought back at the end, or copies be removed before it is told."""
        if self.key and self.mounts:
            return True
        return self.logs is not None or any(not mount.read_only for mount in self.mounts)

    @property
    def opens_shells(self) -> bool:
        return self.shell or self.debug

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
