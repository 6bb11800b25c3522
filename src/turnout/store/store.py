"""The store's face: what control writes and what everyone reads."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from turnout.errors import NotFound
from turnout.job import (
    Attempt,
    Event,
    Job,
    Measurement,
    NewJob,
    Page,
    Past,
    Query,
    Replica,
    ReplicaName,
    Sample,
    Spec,
    State,
    Trial,
)
from turnout.store import rows
from turnout.store.assets import StoredAssets
from turnout.store.codes import FIRST_ENDED
from turnout.store.driver import Driver, Step
from turnout.store.keys import StoredKeys
from turnout.store.locks import Locks, stand_in
from turnout.store.statements import Statements
from turnout.store.trials import StoredTrials
from turnout.store.where import Selection
from turnout.store.writing import Writing
from turnout.vault import KeyGone, KeyRing


@dataclass(slots=True)
class Batch:
    """All that one turn of control changes; it is committed as one."""

    created: list[tuple[Job, NewJob]] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    """Those that changed and were there before."""
    attempts: list[Replica] = field(default_factory=list)
    """New ones: the replicas of each attempt in the order of Launch.replicas()."""
    replicas: list[Replica] = field(default_factory=list)
    """Those that changed and were there before."""
    events: list[Event] = field(default_factory=list)
    documents: list[tuple[int, bytes]] = field(default_factory=list)
    """New ones for jobs that were there before."""
    labels: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """All the labels that a job has from now on."""
    past: list[Past] = field(default_factory=list)
    samples: list[tuple[Attempt, Sample]] = field(default_factory=list)
    """One that is there already is passed over."""
    new_trials: list[Trial] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    """Those that changed and were there before."""
    measurements: list[Measurement] = field(default_factory=list)
    """One of a step that is there already takes its place."""

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


class LiveJob(NamedTuple):
    job: Job
    spec: Spec
    replicas: list[Replica]
    """Of its current attempt."""
    past: tuple[Past, ...] = ()
    """The attempts before that one, in their order; the last is among them while the job waits for another."""
    trials: tuple[Trial, ...] = ()
    """Of a search: those that are not over."""


class Store:
    def __init__(self, driver: Driver, ring: KeyRing | None = None) -> None:
        self._driver = driver
        self._locks = Locks(KeyRing() if ring is None else ring)
        self._sql = Statements(driver.flavour)
        self._writing = Writing(driver)
        self.assets = StoredAssets(driver, self._sql, self._writing)
        self.keys = StoredKeys(driver, self._sql, self._writing)
        self.trials = StoredTrials(driver, self._sql, self._writing, self._locks)

    @staticmethod
    def open(url: str, database: Path, ring: KeyRing | None = None) -> "Store":
        """`url` names a PostgreSQL database; empty: SQLite in the file `database`, which is made if need be.

        Brings an old schema up to date. Raises Misconfigured if there is nothing to work with.
        """
        if url:
            from turnout.store.postgres import open_postgres

            return Store(open_postgres(url), ring)
        from turnout.store.migrate import open_sqlite

        return Store(open_sqlite(database), ring)

    @property
    def ring(self) -> KeyRing:
        return self._locks.ring

    async def commit(self, batch: Batch) -> None:
        """Durable when it returns; raises StoreError if nothing was written. One at a time, by control only."""
        # The rows are taken here and now: what the caller changes while the thread writes belongs to its next batch.
        if steps := self._steps(self._locks.sealed(batch)):
            await self._writing.write(steps)

    async def taken(self, handles: list[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
        """Which of these (project, scope, handle) name a job that is not deleted."""
        found = await self._driver.each(self._sql.by_handle, handles)
        return {handle for handle, jobs in zip(handles, found, strict=True) if jobs}

    async def live(self) -> list[LiveJob]:
        """All that have not ended, oldest first. Their number, not the store's size, decides how long it takes."""
        found = await self._driver.read(self._sql.live_jobs)
        members = map(self._replica, await self._driver.read(self._sql.live_replicas))
        gangs = {job: list(gang) for job, gang in groupby(members, lambda replica: replica.job)}
        before = map(self._past, await self._driver.read(self._sql.live_past))
        pasts = {job: tuple(past) for job, past in groupby(before, lambda past: past.job)}
        tried = groupby(await self.trials.live(), lambda trial: trial.job)
        trials = {job: tuple(one) for job, one in tried}
        live: list[LiveJob] = []
        for row in found:
            job = self._job(row[:-1])
            gang, tries = gangs.get(job.id, []), trials.get(job.id, ())
            spec = self._live_spec(job, row[-1], gang, tries)
            live.append(LiveJob(job, spec, gang, pasts.get(job.id, ()), tries))
        return live

    def _live_spec(self, job: Job, data: bytes, gang: list[Replica], trials: tuple[Trial, ...]) -> Spec:
        try:
            spec, lost = rows.spec_of(self._locks.opened_spec(job.id, bytes(data))), False
        except KeyGone:
            # Only a search gets on without ever having had a place.
            searches = bool(trials) or (job.state is not State.QUEUED and not job.attempt)
            spec, lost = stand_in(bytes(data), gang, searches=searches), True
        self._locks.live(job, spec, lost=lost)
        return spec

    async def last_id(self) -> int:
        """The largest id ever given; 0 in an empty store."""
        return (await self._driver.read(self._sql.last_id, near=True))[0][0] or 0

    async def job(self, job_id: int) -> Job | None:
        if not rows.storable(job_id):
            return None
        found = (await self._driver.each(self._sql.job, [(job_id,)]))[0]
        return self._locks.opened_job(rows.job_of(found[0]), remember=True) if found else None

    async def by_handle(self, project: str, scope: str, handle: str) -> Job | None:
        """The one that is not deleted."""
        key = project, scope, handle
        if not all(map(rows.storable, key)):
            return None
        found = (await self._driver.each(self._sql.by_handle, [key]))[0]
        return self._job(found[0]) if found else None

    async def find(self, query: Query, page: Page) -> list[Job]:
        """States and reasons are ordered by how a life goes, not by their names."""
        selection = Selection(query, self._driver.flavour)
        sql, values = selection.page(page)
        near = selection.plain and page.order_by == "id" and page.limit + page.offset <= NEAR_ROWS
        return [self._job(row) for row in await self._driver.read(sql, values, near=near)]

    async def projects(self) -> list[str]:
        """Those that have jobs. Their number, not the store's size, decides how long it takes."""
        return [row[0] for row in await self._driver.read(self._sql.projects)]

    async def count(self, query: Query) -> int:
        sql, values = Selection(query, self._driver.flavour).count()
        return (await self._driver.read(sql, values))[0][0]

    async def replicas(self, jobs: list[Job]) -> dict[int, list[Replica]]:
        """Of each one's current attempt, in the gang's order."""
        found = await self._driver.each(self._sql.replicas, [(job.id, job.attempt) for job in jobs])
        return {job.id: [self._replica(row) for row in gang] for job, gang in zip(jobs, found, strict=True)}

    async def gang(self, attempt: Attempt) -> list[Replica]:
        """An attempt's replicas, in the gang's order; also of one that is past."""
        found = await self._driver.each(self._sql.replicas, [tuple(attempt)])
        return [self._replica(row) for row in found[0]]

    async def documents(self, ids: list[int]) -> dict[int, bytes]:
        """Jobs that do not exist are left out, and so are those whose key is gone: their message says that."""
        found = await self._driver.each(self._sql.document, [(job_id,) for job_id in ids])
        kept = {job_id: bytes(one[0][0]) for job_id, one in zip(ids, found, strict=True) if one}
        opened = ((job_id, self._locks.document(job_id, data)) for job_id, data in kept.items())
        return {job_id: document for job_id, document in opened if document is not None}

    async def spec(self, job_id: int) -> Spec:
        """Raises KeyGone."""
        found = (await self._driver.each(self._sql.spec, [(job_id,)]))[0]
        if not found:
            raise NotFound(f"there is no job {job_id}")
        return rows.spec_of(self._locks.opened_spec(job_id, bytes(found[0][0])))

    async def events(self, job_id: int) -> list[Event]:
        """In the order in which they happened."""
        found = await self._driver.read(self._sql.events, (job_id, NEAR_ROWS + 1), near=True)
        if len(found) > NEAR_ROWS:
            found = await self._driver.read(self._sql.events, (job_id, ALL))
        return [rows.event_of((*row[:-1], self._locks.text(job_id, row[-1], "event"))) for row in found]

    async def labels(self, ids: list[int]) -> dict[int, dict[str, str]]:
        found = await self._driver.each(self._sql.labels, [(job_id,) for job_id in ids])
        return {job_id: dict(labels) for job_id, labels in zip(ids, found, strict=True)}

    async def past(self, job_id: int) -> list[Past]:
        """The attempts before the job's last, in their order."""
        return [self._past(row) for row in (await self._driver.each(self._sql.past, [(job_id,)]))[0]]

    async def samples(self, job_id: int, replica: ReplicaName) -> list[Sample]:
        """Of all attempts, by time."""
        found = await self._driver.read(self._sql.samples, (job_id, *replica))
        return [rows.sample_of(replica, row) for row in found]

    async def finished_attempts(self, attempts: list[Attempt], before: int) -> list[Attempt]:
        """Which of these nobody can ask for any more: the job ended before then, is deleted, or was never here.

        Made for what an engine finds on disk: it costs a lookup for each of those, however many jobs there are.
        """
        ids = sorted({attempt.job for attempt in attempts})
        found = await self._driver.each(self._sql.finished, [(job_id,) for job_id in ids])
        kept = {
            job_id for job_id, one in zip(ids, found, strict=True) if one and not _finished(one[0], before)
        }
        return [attempt for attempt in attempts if attempt.job not in kept]

    async def close(self) -> None:
        await self._writing.close()
        await self._driver.close()

    def _steps(self, batch: Batch) -> list[Step]:
        sql = self._sql
        deleted = [(job.deleted, job.id) for job in batch.jobs if job.deleted is not None]
        steps = (
            Step(sql.insert_job, [rows.job_row(job) for job, _ in batch.created]),
            Step(sql.insert_document, [self._document_row(job, new) for job, new in batch.created]),
            Step(sql.update_job, [rows.job_change(job) for job in batch.jobs], changes=True),
            Step(sql.delete_job, deleted, changes=True),
            Step(
                sql.insert_replica, [rows.replica_row(one, rank) for rank, one in enumerate(batch.attempts)]
            ),
            Step(sql.update_replica, [rows.replica_change(one) for one in batch.replicas], changes=True),
            Step(sql.insert_event, [rows.event_row(event) for event in batch.events]),
            *self._amendments(batch),
        )
        return [step for step in steps if step.rows]

    def _document_row(self, job: Job, new: NewJob) -> rows.Row:
        job_id, document, spec = rows.document_row(job, new)
        return job_id, document, self._locks.spec(job_id, spec)

    def _job(self, row: rows.Row) -> Job:
        return self._locks.opened_job(rows.job_of(row))

    def _replica(self, row: rows.Row) -> Replica:
        replica = rows.replica_of(row)
        replica.message = self._locks.text(replica.job, replica.message, "replica")
        return replica

    def _past(self, row: rows.Row) -> Past:
        past = rows.past_of(row)
        message = self._locks.text(past.job, past.message, "past")
        return past if message is past.message else replace(past, message=message)

    def _amendments(self, batch: Batch) -> Iterator[Step]:
        """What most turns have nothing of."""
        sql = self._sql
        labelled = [(job.id, new.labels) for job, new in batch.created if new.labels]
        if batch.labels:
            replaced = dict(batch.labels)
            yield Step(sql.delete_labels, [(job_id,) for job_id in replaced])
            labelled = [one for one in labelled if one[0] not in replaced] + list(replaced.items())
        if labelled:
            yield Step(sql.insert_label, [row for one in labelled for row in rows.label_rows(*one)])
        if batch.documents:
            changed = [(document, job_id) for job_id, document in batch.documents]
            yield Step(sql.update_document, changed, changes=True)
        if batch.past:
            yield Step(sql.insert_past, [rows.past_row(past) for past in batch.past])
        if batch.samples:
            yield Step(sql.insert_sample, [rows.sample_row(*one) for one in batch.samples])
        yield from self.trials.steps(batch.new_trials, batch.trials, batch.measurements)


NEAR_ROWS = 100
"""So few are read at once."""
ALL = (1 << 63) - 1


def _finished(row: rows.Row, before: int) -> bool:
    state, ended, deleted = row
    return state >= FIRST_ENDED and (deleted is not None or ended is None or ended < before)
