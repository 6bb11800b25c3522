"""Create, read, stop and delete jobs, on behalf of somebody."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgspec

from turnout.control import Control, Explanation
from turnout.errors import Denied, Invalid, NotFound, WrongState
from turnout.job import (
    All,
    Attempt,
    Compare,
    Event,
    Job,
    NewJob,
    Page,
    Past,
    Query,
    Replica,
    ReplicaLog,
    ReplicaName,
    ReplicaState,
    Sample,
    Size,
    Spec,
    State,
    Terminal,
    Trial,
    from_uuid,
)
from turnout.job.resources import Share
from turnout.job.state import LIVE
from turnout.store import LONGEST_LABEL, Store, storable


class Caller(NamedTuple):
    """Who asks, and in which project."""

    key: str
    project: str
    root: bool = False


class JobView(NamedTuple):
    job: Job
    replicas: tuple[Replica, ...]
    kept: bytes
    locked: str = ""
    """Why `document` cannot be had: the job's key is gone. Everything else about it can."""

    @property
    def document(self) -> bytes:
        """Raises WrongState if it is locked."""
        if self.locked:
            raise WrongState(self.locked)
        return self.kept


class Visitable(NamedTuple):
    """What people may open in a job at the moment."""

    shells: tuple[str, ...] = ()
    """The names of the replicas."""
    dashboard: str = ""
    """The name of the replica that has one."""


class Jobs:
    def __init__(self, store: Store, control: Control, clusters: Collection[str]) -> None:
        self._store = store
        self._control = control
        self._clusters = frozenset(clusters)

    def clusters(self) -> frozenset[str]:
        return self._clusters

    async def projects(self) -> list[str]:
        """Those that have jobs."""
        return await self._store.projects()

    async def create(self, caller: Caller, new: NewJob, trial: Trial | None = None) -> Job:
        """On disk when it returns. Raises NotFound or WrongState for a key that is unknown, or cannot be had.

        `trial`: what it tries, for a search that is live.
        """
        if new.cluster not in self._clusters:
            raise NotFound(f"no cluster {new.cluster}; there are {', '.join(sorted(self._clusters))}")
        if new.labels:
            check_labels(new.labels)
        if new.spec.key:
            new = self._with_data_key(new)
        notes = new.notes + self._runtime_notes(new)
        new = msgspec.structs.replace(new, project=caller.project, notes=notes)
        return await self._control.create(new, trial)

    async def by_handle(self, caller: Caller, scope: str, handle: str) -> JobView:
        job = await self._store.by_handle(caller.project, scope, handle)
        if job is None:
            raise NotFound(f"no job {handle}")
        return await self.view(job)

    async def by_id(self, caller: Caller, job_id: int) -> JobView:
        return await self.view(await self._own(caller, job_id))

    async def view(self, job: Job) -> JobView:
        return (await self._views([job]))[0]

    async def by_reference(self, caller: Caller, reference: str, cluster: str = "") -> JobView:
        """By id, UUID or name: however a person has it at hand. A name that several jobs have needs the cluster."""
        job_id = int(reference) if reference.isdecimal() and len(reference) == 19 else from_uuid(reference)
        if job_id is not None:
            return await self.by_id(caller, job_id)
        query = All(Compare("name", "=", reference))
        if cluster:
            query = All(*query, Compare("cluster", "=", cluster))
        found = await self.find(caller, query, Page(limit=6))
        if not found:
            raise NotFound(f"no job {reference}" + (f" on cluster {cluster}" if cluster else ""))
        if len(found) > 1:
            several = ", ".join(f"{view.job.id} ({view.job.cluster}, {view.job.state})" for view in found)
            raise Invalid(
                f"several jobs are named {reference}: {several}; say which by id or cluster", field="job"
            )
        return found[0]

    async def find(self, caller: Caller, query: Query, page: Page) -> list[JobView]:
        """Of the caller's project, without deleted ones."""
        return await self._views(await self._store.find(_mine(caller, query), page))

    async def count(self, caller: Caller, query: Query) -> int:
        """How many `find` has on all pages together."""
        return await self._store.count(_mine(caller, query))

    async def amend(
        self,
        caller: Caller,
        job_id: int,
        *,
        document: bytes | None = None,
        priority: int | None = None,
        labels: dict[str, str] | None = None,
    ) -> Job:
        """Replace what is given; a new priority counts at once for a job that waits. On disk when it returns."""
        await self._own(caller, job_id)
        if labels:
            check_labels(labels)
        return await self._control.amend(
            job_id, caller.key, document=document, priority=priority, labels=labels
        )

    async def note(self, caller: Caller, job_id: int, text: str) -> None:
        """Put down something about the job, as one of its events."""
        await self._own(caller, job_id)
        await self._control.amend(job_id, caller.key, note=text)

    async def stop(self, caller: Caller, job_id: int) -> Job:
        return await self._control.stop(job_id, caller.key)

    async def delete(self, caller: Caller, job_id: int) -> None:
        """A job that runs is stopped first; its name is free at once."""
        await self._control.delete(job_id, caller.key)

    async def explain(self, view: JobView) -> Explanation:
        return self._control.explain(view.job.id) or Explanation(_why_ended(view))

    async def events(self, view: JobView) -> list[Event]:
        return await self._store.events(view.job.id)

    async def spec(self, view: JobView) -> Spec:
        return await self._store.spec(view.job.id)

    async def labels(self, ids: list[int]) -> dict[int, dict[str, str]]:
        return await self._store.labels(ids)

    async def past(self, view: JobView) -> list[Past]:
        """The attempts before the last, in their order."""
        return await self._store.past(view.job.id)

    async def replicas(self, view: JobView, attempt: int) -> tuple[Replica, ...]:
        """Of one attempt, which may be past; none if there was no such attempt."""
        return tuple(await self._store.gang(Attempt(view.job.id, attempt)))

    async def samples(self, view: JobView, replica: ReplicaName) -> list[Sample]:
        """Of all attempts, by time."""
        return await self._store.samples(view.job.id, replica)

    async def wait(
        self, caller: Caller, job_id: int, until: Callable[[Job], bool], timeout: float
    ) -> JobView:
        """The job once `until` holds, or as it is after `timeout` seconds. Nothing polls meanwhile."""
        with self._control.hub.watch(job_id) as changed:
            try:
                async with asyncio.timeout(timeout):
                    while True:
                        changed.clear()
                        job = await self._own(caller, job_id)
                        if until(job) or self._control.hub.closed:
                            return await self.view(job)
                        await changed.wait()
            except TimeoutError:
                return await self.by_id(caller, job_id)

    def watch(self, job_id: int) -> AbstractContextManager[asyncio.Event]:
        """See Hub.watch."""
        return self._control.hub.watch(job_id)

    def log(self, job: Job, attempt: int, replica: ReplicaName) -> ReplicaLog:
        return self._control.log(job, attempt, replica)

    def follow(self, job: Job) -> AsyncIterator[None]:
        """Yields whenever a log of the job's current attempt may have grown."""
        return self._control.follow(job)

    async def visitable(self, view: JobView) -> Visitable:
        running = [str(one.name) for one in view.replicas if one.state is ReplicaState.RUNNING]
        if view.job.state is not State.RUNNING or not running:
            return Visitable()
        spec = await self.spec(view)
        lead = str(lead_of(spec)) if spec.dashboard else ""
        return Visitable(tuple(running) if spec.opens_shells else (), lead if lead in running else "")

    async def shell(self, caller: Caller, job_id: int, replica: str, size: Size) -> Terminal:
        """Beside the program of a replica that runs. Raises NotFound, Denied, WrongState or Unreachable."""
        view = await self.by_id(caller, job_id)
        if not (await self.spec(view)).opens_shells:
            raise Denied(f"job {job_id} was created without shells: enableWebAccess or Debug asks for them")
        return await self._control.shell(view.job, _running(view, replica).name, size)

    async def dashboard(self, caller: Caller, job_id: int) -> tuple[str, int] | None:
        """Where the page of a job's lead can be reached from here; None while there is none. Raises as `shell`."""
        view = await self.by_id(caller, job_id)
        spec = await self.spec(view)
        if not spec.dashboard:
            raise Denied(f"job {job_id} was created without a dashboard: enableDashboardAccess asks for one")
        return await self._control.dashboard(view.job, _running(view, str(lead_of(spec))))

    def closing(self) -> bool:
        return self._control.hub.closed

    def counts(self) -> dict[str, int]:
        """How many live jobs there are in each state, also where there are none."""
        return dict.fromkeys(LIVE, 0) | self._control.counts()

    def total(self, cluster: str) -> Share:
        """All that a cluster has, CPU with what is promised above the cores; nothing until its engine has told."""
        return self._control.total(cluster)

    def ends(self) -> dict[str, int]:
        """How many jobs ended since the service started, by reason."""
        return self._control.ends

    def running(self) -> bool:
        return self._control.running()

    def engines_ready(self) -> bool:
        return self._control.ready()

    async def _own(self, caller: Caller, job_id: int) -> Job:
        job = await self._store.job(job_id)
        if job is None or job.deleted or job.project != caller.project:
            raise NotFound(f"no job {job_id}")
        return job

    async def _views(self, jobs: list[Job]) -> list[JobView]:
        replicas = await self._store.replicas(jobs)
        documents = await self._store.documents([job.id for job in jobs])
        return [_view(job, replicas.get(job.id, []), documents.get(job.id)) for job in jobs]

    def has_key(self, name: str) -> bool:
        """Whether the key ring has one of this name."""
        return name in self._store.ring

    def _with_data_key(self, new: NewJob) -> NewJob:
        wrapped = self._store.ring.new(new.spec.key).header.text
        return msgspec.structs.replace(new, spec=msgspec.structs.replace(new.spec, wrapped_key=wrapped))

    def _runtime_notes(self, new: NewJob) -> tuple[str, ...]:
        """Say once for each runtime what was asked for and what runs instead."""
        programs = {role.program.runtime: role.program for role in new.spec.roles if role.program.wants}
        return tuple(
            f"{name} asks for {program.wants}; here it runs on {self._control.runtime(new.cluster, name)}"
            for name, program in programs.items()
        )


def _view(job: Job, replicas: list[Replica], document: bytes | None) -> JobView:
    if document is None:
        return JobView(job, tuple(replicas), b"", locked=job.message)
    return JobView(job, tuple(replicas), document)


def lead_of(spec: Spec) -> ReplicaName:
    return ReplicaName(spec.lead.name, 0)


def _running(view: JobView, name: str) -> Replica:
    replica = next((one for one in view.replicas if str(one.name) == name), None)
    if replica is None or replica.state is not ReplicaState.RUNNING:
        raise WrongState(f"{name} of job {view.job.id} is not running")
    return replica


def _mine(caller: Caller, query: Query) -> Query:
    return All(Compare("project", "=", caller.project), Compare("deleted", "=", None), query)


def check_labels(labels: dict[str, str]) -> None:
    """A dialect checks first, and says it in its cloud's words; this keeps one job's labels from failing a batch."""
    for key, value in labels.items():
        if not storable(key) or not storable(value):
            raise Invalid(f"the label {key!r} holds characters that cannot be kept", field=key)
        if len(key.encode()) + len(value.encode()) > LONGEST_LABEL:
            raise Invalid(f"the label {key!r} and its value have more than {LONGEST_LABEL} bytes", field=key)


def _why_ended(view: JobView) -> list[str]:
    job = view.job
    if job.state is State.SUCCEEDED:
        return [
            f"It succeeded: {_one_line(job.message)}."
            if job.message
            else "It succeeded: its lead exited with code 0."
        ]
    verb = "was stopped" if job.state is State.STOPPED else f"{job.state}"
    told = _one_line(job.message)
    if told and (job.reason is None or job.reason in told):
        why = [f"It {verb}: {told}."]
    else:
        why = [f"It {verb}: {job.reason}." if job.reason else f"It {verb}.", *([f"{told}."] if told else [])]
    if job.started is None:
        why.append("It never ran.")
    ends = [f"{replica.name} {_one_line(replica.message)}" for replica in view.replicas if replica.message]
    return why + [f"{end}." for end in ends if end not in told]


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
