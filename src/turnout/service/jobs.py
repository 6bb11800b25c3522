"""Create, read, stop and delete jobs on behalf of a caller."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from socket import socket
from typing import NamedTuple

import msgspec

from turnout.config import Settings
from turnout.control import Controller, Explanation
from turnout.control.change_log import ChangeLog
from turnout.control.measures import Measures
from turnout.control.overview import Overview, ProjectUsage
from turnout.engines import EngineRegistry
from turnout.errors import Denied, Invalid, NotFound, TurnoutError, Unsupported, WrongState
from turnout.job import (
    All,
    Attempt,
    AuditLine,
    Compare,
    Event,
    Job,
    Launch,
    NewJob,
    Page,
    PastAttempt,
    Query,
    Reason,
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
from turnout.service import advice, calls
from turnout.service.ends import image_of, why_ended
from turnout.store import LONGEST_LABEL, Store, storable

_SHELL_FIELDS = {"vertex": "enableWebAccess", "tia": "Debug"}
"""The field that enables shells, by dialect."""

_OLDER_JOBS = 5


class Caller(NamedTuple):
    """The key that a request is signed with, and the project that it acts in."""

    key: str
    project: str
    root: bool = False


class JobView(NamedTuple):
    job: Job
    replicas: tuple[Replica, ...]
    stored_document: bytes
    locked: str = ""
    """Why `document` is not available: the job's key is missing. Everything else can be read."""
    damaged: bool = False
    """Whether it is locked because the stored document is not valid JSON."""

    @property
    def document(self) -> bytes:
        """Raises WrongState if it is locked."""
        if self.locked:
            raise WrongState(self.locked)
        return self.stored_document


class BrowserTargets(NamedTuple):
    """What a browser can open in a job at the moment."""

    shells: tuple[str, ...] = ()
    """Names of replicas."""
    program_page: str = ""
    """The name of the replica whose program may have a page; empty: none."""


SEARCH_LABEL = "search"
"""Every search has it, so that lists find the few searches among many jobs."""


class Jobs:
    def __init__(
        self,
        store: Store,
        control: Controller,
        engines: EngineRegistry,
        name_of: Callable[[str], str] = lambda key_id: key_id,
        settings: Settings | None = None,
    ) -> None:
        """`name_of`: what records call the owner of a key."""
        self._settings = settings or Settings()
        self._store = store
        self._control = control
        self._engines = engines
        self._name_of = name_of
        self._clusters = frozenset(engines.clusters)

    def check_cluster(self, cluster: str, field: str = "") -> None:
        """Raises NotFound. `field`: the name of the field in the request, for the error."""
        if cluster not in self._clusters:
            known = ", ".join(sorted(self._clusters))
            raise NotFound(f"There is no cluster {cluster!r}; there are {known}.", field=field)

    async def projects(self) -> list[str]:
        """The projects that have jobs."""
        return await self._store.projects()

    async def create(self, caller: Caller, new: NewJob, trial: Trial | None = None) -> Job:
        """On disk when it returns. Raises Unsupported for what the cluster cannot run, NotFound for an unknown key of
        the ring, WrongState for an unavailable one.

        `trial`: the trial that the job runs.
        """
        self.check_cluster(new.cluster)
        if new.spec.search:
            new = msgspec.structs.replace(new, labels=new.labels | {SEARCH_LABEL: ""})
        if new.labels:
            check_labels(new.labels)
        launch = Launch(Attempt(0, 1), caller.project, new.dialect, new.name, new.spec)
        if refusal := self._engines.of(new.cluster).refuses(launch):
            raise Unsupported(refusal)
        if new.spec.key:
            new = self._with_data_key(new)
        notes = new.notes + self._runtime_notes(new)
        new = msgspec.structs.replace(new, project=caller.project, notes=notes)
        owner = self._name_of(caller.key)
        job = await self._control.create(new, trial, owner, self._line(owner))
        calls.recorded()
        calls.created(notes)
        return job

    async def by_handle(self, caller: Caller, scope: str, handle: str) -> JobView:
        job = await self._store.by_handle(caller.project, scope, handle)
        if job is None:
            raise NotFound(f"no job {handle}")
        calls.about(job.name, job.id)
        return await self.view(job)

    async def by_id(self, caller: Caller, job_id: int) -> JobView:
        return await self.view(await self._own(caller, job_id))

    async def view(self, job: Job) -> JobView:
        return (await self._views([job]))[0]

    async def by_reference(
        self, caller: Caller, reference: str, cluster: str = "", *, everywhere: bool = False
    ) -> list[JobView]:
        """The job with this id, UUID or name, then up to five older jobs of the same name. Raises NotFound.

        `everywhere`: if the caller's own project has no such job, look in all projects.
        """
        job_id = int(reference) if reference.isdecimal() and len(reference) == 19 else from_uuid(reference)
        if job_id is not None:
            return [await self.view(await self._own(caller, job_id, everywhere=everywhere))]
        query = All(Compare("deleted", "=", None), Compare("name", "=", reference))
        if cluster:
            query = All(*query, Compare("cluster", "=", cluster))
        page = Page(limit=1 + _OLDER_JOBS)
        jobs = await self._store.find(All(Compare("project", "=", caller.project), *query), page)
        if not jobs and everywhere:
            jobs = await self._store.find(query, page)
        if not jobs:
            raise NotFound(f"no job {reference}" + (f" on cluster {cluster}" if cluster else ""))
        calls.about(jobs[0].name, jobs[0].id)
        return await self._views(jobs)

    async def find(self, caller: Caller, query: Query, page: Page) -> list[JobView]:
        """Jobs of the caller's project, without deleted jobs and those with a damaged document."""
        views = await self._views(await self._store.find(_in_project(caller, query), page))
        return [view for view in views if not view.damaged]

    async def count(self, caller: Caller, query: Query) -> int:
        """The number of jobs on all pages of `find`."""
        return await self._store.count(_in_project(caller, query))

    async def list_jobs(self, project: str | None, query: Query, page: Page) -> list[Job]:
        """Jobs of a project, or of all projects if it is None, without deleted jobs. Reads no documents."""
        among = [Compare("deleted", "=", None), query]
        if project is not None:
            among.insert(0, Compare("project", "=", project))
        return await self._store.find(All(*among), page)

    async def stored(self, ids: list[int]) -> list[Job]:
        """The jobs with these ids that exist, deleted ones included."""
        return await self._store.jobs(ids)

    @property
    def change_log(self) -> ChangeLog:
        return self._control.changes.log

    def overviews(self, project: str | None) -> list[Overview]:
        """The queue of each engine, with the jobs of this project or, if it is None, of all."""
        return self._control.overviews(project)

    def usage(self, project: str) -> ProjectUsage:
        """What the project's jobs use, on all engines."""
        return self._control.usage(project)

    def waits_for(self, job_id: int) -> str:
        """What a job waits for, in a line; empty if it does not wait. Quick enough to call for each job of a page."""
        return self._control.waits_for(job_id)

    async def amend(
        self,
        caller: Caller,
        job_id: int,
        *,
        document: bytes | None = None,
        priority: int | None = None,
        labels: dict[str, str] | None = None,
    ) -> Job:
        """Replace what is given; a new priority takes effect at once for a queued job. On disk when it returns."""
        await self._own(caller, job_id)
        if labels is not None and SEARCH_LABEL in (await self.labels([job_id]))[job_id]:
            labels = labels | {SEARCH_LABEL: ""}
        if labels:
            check_labels(labels)
        line = self._line(self._name_of(caller.key))
        job = await self._control.amend(
            job_id, caller.key, document=document, priority=priority, labels=labels, audit=line
        )
        calls.recorded()
        return job

    async def note(self, caller: Caller, job_id: int, text: str) -> None:
        """Add a note to the events of the job."""
        await self._own(caller, job_id)
        await self._control.amend(job_id, caller.key, note=text)

    async def stop(self, caller: Caller, job_id: int) -> Job:
        job = await self._control.stop(job_id, caller.key, self._line(self._name_of(caller.key)))
        calls.recorded()
        return job

    async def delete(self, caller: Caller, job_id: int) -> None:
        """A running job is stopped first; its name is free at once."""
        await self._control.delete(job_id, caller.key, self._line(self._name_of(caller.key)))
        calls.recorded()

    async def explain(self, view: JobView, last_lines: Sequence[str] = ()) -> Explanation:
        """`last_lines`: of the log of a job that failed."""
        waits = self._control.explain(view.job.id)
        if waits:
            return waits
        image = image_of(await self.events(view))
        return Explanation([*why_ended(view), *image, *await self._other_python(view, last_lines)])

    async def _other_python(self, view: JobView, last_lines: Sequence[str]) -> list[str]:
        """For a job whose program failed: which Python it ran on, and the setting that chooses another."""
        if view.job.reason not in (Reason.PROGRAM_FAILED, Reason.PROGRAM_NOT_FOUND) or view.locked:
            return []
        program = (await self.spec(view)).lead.program
        if program.root:
            return []
        python = self._engines.of(view.job.cluster).runtime(program.runtime)
        return [advice.after_failure(program, python, last_lines, self._settings)]

    async def events(self, view: JobView) -> list[Event]:
        return await self._store.events(view.job.id)

    async def spec(self, view: JobView) -> Spec:
        return await self._store.spec(view.job.id)

    async def labels(self, ids: list[int]) -> dict[int, dict[str, str]]:
        return await self._store.labels(ids)

    async def past(self, view: JobView) -> list[PastAttempt]:
        """The attempts before the last, in their order."""
        return await self._store.past(view.job.id)

    async def replicas(self, view: JobView, attempt: int) -> tuple[Replica, ...]:
        """The replicas of any attempt; empty if there was no such attempt."""
        return tuple(await self._store.gang(Attempt(view.job.id, attempt)))

    async def samples(self, view: JobView, replica: ReplicaName) -> list[Sample]:
        """A replica's samples of all attempts, sorted by time."""
        return await self._store.samples(view.job.id, replica)

    async def wait(
        self, caller: Caller, job_id: int, until: Callable[[Job], bool], timeout: float
    ) -> JobView:
        """The job as soon as `until` holds, or its state after `timeout` seconds. Does not poll."""
        with self._control.changes.watch(job_id) as changed:
            try:
                async with asyncio.timeout(timeout):
                    while True:
                        changed.clear()
                        job = await self._own(caller, job_id)
                        if until(job) or self._control.changes.closed:
                            return await self.view(job)
                        await changed.wait()
            except TimeoutError:
                return await self.by_id(caller, job_id)

    def watch(self, job_id: int) -> AbstractContextManager[asyncio.Event]:
        """See ChangeNotifier.watch."""
        return self._control.changes.watch(job_id)

    def log(self, job: Job, attempt: int, replica: ReplicaName) -> ReplicaLog:
        return self._engines.of(job.cluster).log(Attempt(job.id, attempt), replica)

    def follow(self, job: Job) -> AsyncIterator[None]:
        """Yields whenever a log of the job's current attempt may have grown."""
        return self._engines.of(job.cluster).follow(job.current)

    def written(self, job: Job, replica: ReplicaName, path: str, most: int) -> bytes:
        """See Engine.read_scratch_file."""
        return self._engines.of(job.cluster).read_scratch_file(job.current, replica, path, most)

    async def browser_targets(self, view: JobView) -> BrowserTargets:
        running = [str(replica.name) for replica in view.replicas if replica.state is ReplicaState.RUNNING]
        if view.job.state is not State.RUNNING or not running:
            return BrowserTargets()
        spec = await self.spec(view)
        lead = str(lead_of(spec)) if spec.program_page else ""
        return BrowserTargets(tuple(running) if spec.opens_shells else (), lead if lead in running else "")

    async def shell(self, caller: Caller, job_id: int, replica: str, size: Size) -> Terminal:
        """Open a shell in a running replica. Raises NotFound, Denied, WrongState or Unreachable."""
        view = await self.by_id(caller, job_id)
        if not (await self.spec(view)).opens_shells:
            field = _SHELL_FIELDS.get(view.job.dialect)
            hint = f": create it with {field}" if field else ""
            raise Denied(f"job {job_id} was created without shells{hint}")
        engine = self._engines.of(view.job.cluster)
        terminal = await engine.shell(view.job.current, _running(view, replica).name, size)
        if line := self._line(self._name_of(caller.key)):
            subject = f"{view.job.name} {replica}"
            await self._store.audit.add(line.about(line.at, view.job.project, job_id, subject))
        return terminal

    async def shell_ended(self, caller: Caller, job_id: int, replica: str, seconds: float) -> str:
        """Why a shell of that replica was killed: `the job ended`, or empty if the replica runs on after that time."""
        with self._control.changes.watch(job_id) as changed:
            try:
                async with asyncio.timeout(seconds):
                    while True:
                        changed.clear()
                        view = await self.by_id(caller, job_id)
                        if view.job.reason or view.job.state is not State.RUNNING:
                            return "the job ended"
                        row = next((row for row in view.replicas if str(row.name) == replica), None)
                        if row is None or row.state is not ReplicaState.RUNNING:
                            return f"{replica} ended"
                        await changed.wait()
            except NotFound:
                return "the job ended"  # it was deleted
            except TimeoutError:
                return ""

    async def program_page(self, caller: Caller, job_id: int) -> socket | None:
        """A connection to the page of the lead's program; None until it listens. Raises like `shell`, and OSError."""
        view = await self.by_id(caller, job_id)
        spec = await self.spec(view)
        if not spec.program_page:
            raise Denied(
                f"job {job_id} was created without enableDashboardAccess, so its program has no page"
            )
        engine = self._engines.of(view.job.cluster)
        return await engine.program_page(view.job.current, _running(view, str(lead_of(spec))))

    def closing(self) -> bool:
        return self._control.changes.closed

    def counts(self) -> dict[str, int]:
        """The number of live jobs in each state, including zeros."""
        return dict.fromkeys(LIVE, 0) | self._control.measures.counts()

    @property
    def measures(self) -> Measures:
        return self._control.measures

    async def store_bytes(self) -> int:
        return await self._store.size()

    def total(self, cluster: str) -> Share:
        """The resources of a cluster, with overcommitted CPU; nothing until its engine has reported."""
        return self._control.total(cluster)

    def trouble(self) -> str:
        """Why the service accepts or starts no jobs; empty if it does."""
        if not self._control.running():
            return "not ok: a task of the service has failed and is being started again; the log says why"
        try:
            self._store.check_not_removed()
        except TurnoutError as error:
            return f"not ok: {error.message}"
        return ""

    def engines_synced(self) -> bool:
        """Whether every engine has reported what it runs."""
        return self._control.engines_synced

    def cluster_troubles(self) -> dict[str, str]:
        """For each cluster, why it starts no jobs at the moment; empty if it does."""
        return {cluster: self._control.engine_trouble(cluster) for cluster in sorted(self._clusters)}

    def _line(self, who: str) -> AuditLine | None:
        """What the audit trail says of the current call if it changes a job."""
        call = calls.current()
        return call.line(who) if call else None

    async def _own(self, caller: Caller, job_id: int, *, everywhere: bool = False) -> Job:
        job = await self._store.job(job_id)
        if job is None or job.deleted or (job.project != caller.project and not everywhere):
            raise NotFound(f"no job {job_id}")
        calls.about(job.name, job.id)
        return job

    async def _views(self, jobs: list[Job]) -> list[JobView]:
        replicas = await self._store.replicas(jobs)
        documents = await self._store.documents([job.id for job in jobs])
        return [self._view(job, replicas.get(job.id, []), documents.get(job.id)) for job in jobs]

    def _view(self, job: Job, replicas: list[Replica], document: bytes | None) -> JobView:
        if document is None:
            return JobView(job, tuple(replicas), b"", locked=job.message)
        try:
            msgspec.json.decode(document, type=msgspec.Raw)
        except msgspec.DecodeError as error:
            problem = self._store.unreadable.note(f"the document of job {job.id}", error)
            return JobView(job, tuple(replicas), b"", locked=problem, damaged=True)
        return JobView(job, tuple(replicas), document)

    def _with_data_key(self, new: NewJob) -> NewJob:
        wrapped = self._store.ring.new(new.spec.key).header.text
        return msgspec.structs.replace(new, spec=msgspec.structs.replace(new.spec, wrapped_key=wrapped))

    def _runtime_notes(self, new: NewJob) -> tuple[str, ...]:
        """For each runtime: what was requested, and what runs instead."""
        programs = {role.program.runtime: role.program for role in new.spec.roles if role.program.wants}
        engine = self._engines.of(new.cluster)
        return tuple(
            f"{name} asks for {program.wants}; here it runs on {engine.runtime(name)}"
            for name, program in programs.items()
        )


def lead_of(spec: Spec) -> ReplicaName:
    return ReplicaName(spec.lead.name, 0)


def _running(view: JobView, name: str) -> Replica:
    replica = next((replica for replica in view.replicas if str(replica.name) == name), None)
    if replica is None or replica.state is not ReplicaState.RUNNING:
        raise WrongState(f"{name} of job {view.job.id} is not running")
    return replica


def _in_project(caller: Caller, query: Query) -> Query:
    return All(Compare("project", "=", caller.project), Compare("deleted", "=", None), query)


def check_labels(labels: dict[str, str]) -> None:
    """Dialects check labels first, in their cloud's words. This check protects a commit that many jobs share."""
    for key, value in labels.items():
        if not storable(key) or not storable(value):
            raise Invalid(f"the label {key!r} has characters that cannot be stored", field=key)
        if len(key.encode()) + len(value.encode()) > LONGEST_LABEL:
            raise Invalid(f"the label {key!r} and its value have more than {LONGEST_LABEL} bytes", field=key)
