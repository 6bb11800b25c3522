"""What to run: roles, their programs and resources, mounts, and the policy for retries and ends."""

from enum import StrEnum

import msgspec

from turnout.job.resources import Parts, Resources, Share
from turnout.job.search import Search


class WhenLeadSucceeds(StrEnum):
    """What happens to a role's replicas once the lead has succeeded."""

    END = "end"
    """End them at once: they never end by themselves (parameter servers)."""
    FINISH = "finish"
    """Give them `Policy.finish_seconds` to end by themselves."""


class Program(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The command line, and the runtime that it asks for (a name from a dialect's catalogue)."""

    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    runtime: str = ""
    wants: str = ""
    """What that runtime is in its cloud, for example `TensorFlow 1.7.0 on Python 2.7`."""
    user: int | None = None
    """The user id that the program has inside a sandbox."""
    image: str = ""
    """The container image that the job names; empty: none."""
    root: str = ""
    """The image that a machine without a container engine of its own runs it in; empty: it runs without an image."""
    notice: str = ""
    """A line for the beginning of its log."""

    @property
    def argv(self) -> tuple[str, ...]:
        return self.command + self.args


class Role(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Equal replicas. Exactly one role of a spec leads: its replica 0 decides the outcome."""

    name: str
    program: Program
    replicas: int = 1
    resources: Resources = Resources()
    env: dict[str, str] = {}
    leads: bool = False
    when_lead_succeeds: WhenLeadSucceeds = WhenLeadSucceeds.FINISH
    task_type: str = ""
    """The role's name in TF_CONFIG and CLUSTER_SPEC where it differs from `name`."""
    machine: str = ""
    """The machine type or flavor that the job names, in its cloud's spelling: an engine can choose nodes by it."""
    accelerator: str = ""
    """The same for the kind of accelerator."""
    late: tuple[str, ...] = ()
    """Variables of `env` with references, `$(RANK)`, that `expand` resolves once the gang's map is known."""


class Mount(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A directory that the program finds at `target`: `cos://bucket/dir`, `nfs://host/dir`, `file:///dir`.

    If it has to be copied, the service fetches the data before the start and saves what the program writes.
    """

    source: str
    target: str
    read_only: bool = False
    """An input: there must be something at the source, and changes are not saved."""
    fetch: bool = True
    """False: an output. If it is a copy, it is empty at the start."""
    period: float = 30
    """Seconds between two saves of changes; 0: they are saved at the end only."""
    package: bool = False
    """The job's code: there must be something at the source, although the program may write to it."""
    output: bool = False
    """The job says that it writes there: a missing bucket is made at the start, not by the first file."""
    files: tuple[str, ...] = ()
    """Paths in it that must be files when the job starts."""

    @property
    def required(self) -> bool:
        """Whether there must be something at the source."""
        return self.read_only or self.package


class LogExport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Each replica's log, both streams in the order of time, as a file in the directory `to`."""

    to: str
    name: str
    """With `{id}`, the job's UUID, and `{replica}`: `modelarts-job-{id}-{replica}.log`."""
    period: float = 30


class Retry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Retries an attempt that ended for one of these reasons, at most `times` times."""

    on: tuple[str, ...]
    times: int
    codes: tuple[int, ...] = ()
    """Only if the replica that decided it exited with one of these, 128 + n for signal n; empty: in any case."""
    not_codes: tuple[int, ...] = ()
    """Not if it exited with one of these."""

    def covers(self, reason: str, code: int | None) -> bool:
        """Whether the rule applies to such an end, regardless of how often it was used."""
        if reason not in self.on or code in self.not_codes:
            return False
        return not self.codes or code in self.codes


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A preempted job returns to the queue. After a failure, a job is retried only if a rule has a retry left."""

    retries: tuple[Retry, ...] = ()
    in_place: Retry | None = None
    """Applies before `retries`: restarts a replica in place while the others go on."""
    time_limit: float | None = None
    """Seconds of running, in one attempt."""
    max_wait: float | None = None
    """Seconds in the queue before its first attempt, after which the job fails."""
    retry_wait: float | None = 1800
    """The same for an attempt that follows a failed one. None: no limit."""
    hang_seconds: float | None = None
    """How long a whole gang may use no CPU time and do no I/O before it counts as hung."""
    grace: float = 10
    """Seconds between TERM and KILL."""
    finish_seconds: float = 30
    priority: int = 1
    """Jobs with a higher priority start first."""
    preemptible: bool = False
    """May be ended, and put back into the queue, for a job of higher priority."""
    preemptions: int | None = None
    """How often it is put back; the next time it fails. None: always."""


class Notify(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The webhook that the job itself names."""

    hook: str
    events: tuple[str, ...] = ()


class Spec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    roles: tuple[Role, ...]
    mounts: tuple[Mount, ...] = ()
    scratch: tuple[str, ...] = ()
    """Private directories of each replica, empty at its start and removed with it. Mounts may be inside."""
    working_dir: str = ""
    policy: Policy = Policy()
    logs: LogExport | None = None
    config_job: str = msgspec.field(default="", name="told")
    """A JSON object that TF_CONFIG and CLUSTER_SPEC show as `job`."""
    trial: str = ""
    """Which trial of a search this is, as TF_CONFIG and CLUSTER_SPEC show it in `task`."""
    debug: bool = False
    """Keep the workspace after the end, and open shells."""
    shell: bool = False
    """Users may open shells in its running replicas."""
    program_page: bool = msgspec.field(default=False, name="dashboard")
    """The lead has a port for a page that users may open while it runs."""
    key: str = ""
    """The key of the ring that encrypts the job's stored data; empty: not encrypted."""
    wrapped_key: str = ""
    """The job's data key, made when the job is created and encrypted with `key`."""
    notify: Notify | None = None
    search: Search | None = None
    """The job is a hyper-parameter search: it has no gang; its trials are jobs."""

    @property
    def saves(self) -> bool:
        """Whether the engine may have to store outputs, or remove copies, before the end is reported."""
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
    def parts(self) -> Parts:
        """Computed on each call, in the order of Launch.replicas()."""
        roles = sorted(self.roles, key=lambda role: not role.leads)
        return tuple((role.replicas, role.resources.share) for role in roles)

    @property
    def share(self) -> Share:
        """What the whole gang is charged for. Computed on each call."""
        return sum((share.times(count) for count, share in self.parts), Share(0, 0, 0))
