"""The public interface of the store: the controller writes through it, everyone reads."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from turnout.errors import Misconfigured, NotFound
from turnout.job import (
    Attempt,
    AuditLine,
    Delivery,
    Event,
    Job,
    Measurement,
    NewJob,
    Page,
    PastAttempt,
    Query,
    Replica,
    ReplicaName,
    Sample,
    Spec,
    State,
    Submission,
    Trial,
)
from turnout.store import rows
from turnout.store.assets import StoredAssets
from turnout.store.audit import StoredAudit
from turnout.store.codes import FIRST_ENDED
from turnout.store.deliveries import StoredDeliveries
from turnout.store.driver import Driver, Step
from turnout.store.encryption import StoreEncryption, placeholder_spec
from turnout.store.keys import StoredKeys
from turnout.store.retention import StoredRetention
from turnout.store.statements import Statements
from turnout.store.trials import StoredTrials
from turnout.store.unreadable import Unreadable, UnreadableRows
from turnout.store.where import Selection
from turnout.store.write_queue import WriteQueue
from turnout.vault import KeyGone, KeyRing


@dataclass(slots=True)
class Batch:
    """All changes of one turn of the controller; committed as one."""

    created: list[tuple[Job, NewJob]] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    """Existing rows that changed."""
    attempts: list[Replica] = field(default_factory=list)
    """New rows: the replicas of each attempt, in the order of Launch.replicas()."""
    replicas: list[Replica] = field(default_factory=list)
    """Existing rows that changed."""
    events: list[Event] = field(default_factory=list)
    documents: list[tuple[int, bytes]] = field(default_factory=list)
    """New documents of existing jobs."""
    labels: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """The complete new labels of a job."""
    past: list[PastAttempt] = field(default_factory=list)
    submissions: list[Submission] = field(default_factory=list)
    """Replaces the one of the same attempt."""
    samples: list[tuple[Attempt, Sample]] = field(default_factory=list)
    """Samples that exist already are ignored."""
    new_trials: list[Trial] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    """Existing rows that changed."""
    measurements: list[Measurement] = field(default_factory=list)
    """Replaces a measurement of the same step."""
    audit: list[AuditLine] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


class LiveRecord(NamedTuple):
    job: Job
    spec: Spec
    replicas: list[Replica]
    """The replicas of the current attempt."""
    past: tuple[PastAttempt, ...] = ()
    """Past attempts in order. While the job waits for its next attempt, the last one is among them."""
    trials: tuple[Trial, ...] = ()
    """A search's unfinished trials."""
    trouble: str = ""
    """What cannot be read of the job; the controller ends such a job."""
    submission: Submission | None = None
    """Of its current attempt."""


class Store:
    def __init__(self, driver: Driver, ring: KeyRing | None = None) -> None:
        self._driver = driver
        self._encryption = StoreEncryption(KeyRing() if ring is None else ring)
        self._sql = Statements(driver.flavour)
        self._queue = WriteQueue(driver)
        self.unreadable = UnreadableRows()
        self.assets = StoredAssets(driver, self._sql, self._queue, self.unreadable)
        self.audit = StoredAudit(driver, self._sql, self._queue, self.unreadable)
        self.deliveries = StoredDeliveries(driver, self._sql, self._queue, self.unreadable)
        self.keys = StoredKeys(driver, self._sql, self._queue, self.unreadable)
        self.trials = StoredTrials(driver, self._sql, self._queue, self._encryption, self.unreadable)
        self.retention = StoredRetention(driver, self._queue)

    @staticmethod
    def check(url: str) -> None:
        """Raises Misconfigured if the library for PostgreSQL is missing."""
        if not url:
            return
        try:
            import turnout.store.postgres  # noqa: F401
        except ImportError as error:
            raise Misconfigured(
                f"[store] url names PostgreSQL, but psycopg cannot be imported ({error}): "
                "run pip install 'turnout[postgres]', or leave the setting out for SQLite"
            ) from None

    @staticmethod
    def open(url: str, database: Path, ring: KeyRing | None = None) -> "Store":
        """`url` names a PostgreSQL database; if empty, SQLite in the file `database`, which is created if missing.

        Upgrades an old schema. Raises Misconfigured if the database cannot be used.
        """
        if url:
            from turnout.store.postgres import open_postgres

            return Store(open_postgres(url), ring)
        from turnout.store.migrate import open_sqlite

        return Store(open_sqlite(database), ring)

    @property
    def ring(self) -> KeyRing:
        return self._encryption.ring

    def was_removed(self, why: str) -> None:
        """Call it when the database file was removed: new jobs are refused from then on. Running jobs continue."""
        self._queue.removed = why

    def check_not_removed(self) -> None:
        """Raises Removed."""
        self._queue.check_not_removed()

    async def commit(self, batch: Batch) -> None:
        """On disk when it returns. Raises StoreError if nothing was written. Only for control, one call at a time."""
        # The rows are built now: changes that the caller makes during the write belong to its next batch.
        if steps := self._steps(self._encryption.sealed(batch)):
            await self._queue.write(steps)

    async def taken(self, handles: list[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
        """Which of these (project, scope, handle) name a job that is not deleted."""
        found = await self._driver.read_each(self._sql.taken, handles)
        return {handle for handle, jobs in zip(handles, found, strict=True) if jobs}

    async def live(self) -> list[LiveRecord]:
        """All live jobs, oldest first. The time depends on their number, not on the size of the store."""
        found = await self._driver.read(self._sql.live_jobs)
        members = await self._driver.read(self._sql.live_replicas)
        gangs = _by_job(self.unreadable.read_rows(members, self._replica, "replica of job", 4))
        before = await self._driver.read(self._sql.live_past)
        pasts = _by_job(self.unreadable.read_rows(before, self._past, "past attempt of job", 2))
        tried = await self._driver.read(self._sql.live_trials)
        trials = _by_job(self.trials.read(tried))
        sent = await self._driver.read(self._sql.live_submissions)
        submissions = {
            submission.job: submission
            for submission in self.unreadable.read_rows(sent, rows.submission_of, "submission of job")
        }
        # A job with unreadable rows has fewer replicas or trials than rows.
        row_count = Counter(row[0] for row in (*members, *tried))
        return self.unreadable.read_rows(
            found,
            lambda row: self._live_job(
                row,
                gangs.get(row[0], []),
                tuple(pasts.get(row[0], ())),
                tuple(trials.get(row[0], ())),
                row_count[row[0]],
            )._replace(submission=submissions.get(row[0])),
            "job",
        )

    def _live_job(
        self,
        row: rows.Row,
        gang: list[Replica],
        past: tuple[PastAttempt, ...],
        trials: tuple[Trial, ...],
        row_count: int,
    ) -> LiveRecord:
        trouble = (
            "" if len(gang) + len(trials) == row_count else "not all of its replicas or trials can be read"
        )
        try:
            job = self._encryption.opened_job(rows.job_of(row[:-1]))
        except Exception as error:  # noqa: BLE001 (a damaged job must be ended, and the others loaded)
            trouble = self.unreadable.note(f"job {row[0]}", error)
            job = rows.damaged_job_of(row[:-1])
            job.state, job.reason, job.ended = State.RUNNING, None, None
        # Only a search leaves the queue without an attempt.
        is_search = bool(trials) or (job.state is not State.QUEUED and not job.attempt)
        lost, data = False, b""
        try:
            data = rows.document_of(row[-1:])
            spec = rows.spec_of(self._encryption.opened_spec(job.id, data))
        except KeyGone:
            spec, lost = placeholder_spec(data, gang, is_search=is_search), True
        except Exception as error:  # noqa: BLE001 (as above)
            trouble = self.unreadable.note(f"the spec of job {job.id}", error)
            spec, lost = placeholder_spec(data, gang, is_search=is_search), True
        self._encryption.register(job, spec, lost=lost)
        return LiveRecord(job, spec, gang, past, trials, trouble)

    async def last_id(self) -> int:
        """The largest job id; 0 in an empty store."""
        return (await self._driver.read(self._sql.last_id, inline=True))[0][0] or 0

    async def job(self, job_id: int) -> Job | None:
        if not rows.storable(job_id):
            return None
        found = (await self._driver.read_each(self._sql.job, [(job_id,)]))[0]
        return self._job(found[0], remember=True) if found else None

    async def jobs(self, ids: list[int]) -> list[Job]:
        """Those that exist, in the order of the ids. Deleted jobs are among them."""
        found = await self._driver.read_each(self._sql.job, [(job_id,) for job_id in ids])
        return [self._job(rows_of_id[0]) for rows_of_id in found if rows_of_id]

    async def by_handle(self, project: str, scope: str, handle: str) -> Job | None:
        """The job with this handle that is not deleted."""
        key = project, scope, handle
        if not all(map(rows.storable, key)):
            return None
        found = (await self._driver.read_each(self._sql.by_handle, [key]))[0]
        return self._job(found[0]) if found else None

    async def find(self, query: Query, page: Page) -> list[Job]:
        """States and reasons are ordered by their codes, not by their names."""
        selection = Selection(query, self._driver.flavour)
        sql, values = selection.page(page)
        inline = selection.plain and page.order_by == "id" and page.limit + page.offset <= INLINE_ROWS
        return [self._job(row) for row in await self._driver.read(sql, values, inline=inline)]

    async def projects(self) -> list[str]:
        """The projects that have jobs. The time depends on their number, not on the size of the store."""
        return [row[0] for row in await self._driver.read(self._sql.projects)]

    async def count(self, query: Query) -> int:
        sql, values = Selection(query, self._driver.flavour).count()
        return (await self._driver.read(sql, values))[0][0]

    async def replicas(self, jobs: list[Job]) -> dict[int, list[Replica]]:
        """The replicas of each job's current attempt, in the gang's order."""
        found = await self._driver.read_each(self._sql.replicas, [(job.id, job.attempt) for job in jobs])
        return {job.id: self._gang(gang) for job, gang in zip(jobs, found, strict=True)}

    async def gang(self, attempt: Attempt) -> list[Replica]:
        """The replicas of any attempt, in the gang's order."""
        found = await self._driver.read_each(self._sql.replicas, [tuple(attempt)])
        return self._gang(found[0])

    async def documents(self, ids: list[int]) -> dict[int, bytes]:
        """Leaves out jobs that do not exist and jobs whose key is missing; the message of such a job says that it is.

        A document that cannot be read is empty.
        """
        found = await self._driver.read_each(self._sql.document, [(job_id,) for job_id in ids])
        kept = (
            (job_id, self._document(job_id, result[0]))
            for job_id, result in zip(ids, found, strict=True)
            if result
        )
        return {job_id: document for job_id, document in kept if document is not None}

    async def spec(self, job_id: int) -> Spec:
        """Raises KeyGone or Unreadable."""
        found = (await self._driver.read_each(self._sql.spec, [(job_id,)]))[0]
        if not found:
            raise NotFound(f"there is no job {job_id}")
        try:
            return rows.spec_of(self._encryption.opened_spec(job_id, rows.document_of(found[0])))
        except KeyGone:
            raise
        except Exception as error:
            raise Unreadable(self.unreadable.note(f"the spec of job {job_id}", error)) from error

    async def events(self, job_id: int) -> list[Event]:
        """In chronological order."""
        found = await self._driver.read(self._sql.events, (job_id, INLINE_ROWS + 1), inline=True)
        if len(found) > INLINE_ROWS:
            found = await self._driver.read(self._sql.events, (job_id, ALL))
        return self.unreadable.read_rows(found, self._event, "event of job")

    async def labels(self, ids: list[int]) -> dict[int, dict[str, str]]:
        found = await self._driver.read_each(self._sql.labels, [(job_id,) for job_id in ids])
        return {
            job_id: dict(self.unreadable.read_rows(labels, rows.label_of, f"label of job {job_id}:"))
            for job_id, labels in zip(ids, found, strict=True)
        }

    async def past(self, job_id: int) -> list[PastAttempt]:
        """The attempts before the job's last, in their order."""
        found = (await self._driver.read_each(self._sql.past, [(job_id,)]))[0]
        return self.unreadable.read_rows(found, self._past, "past attempt of job", 2)

    async def samples(self, job_id: int, replica: ReplicaName) -> list[Sample]:
        """The samples of all attempts, by time."""
        found = await self._driver.read(self._sql.samples, (job_id, *replica))
        read = partial(rows.sample_of, replica)
        return self.unreadable.read_rows(found, read, f"sample of job {job_id}, {replica}:")

    async def finished_attempts(self, attempts: list[Attempt], before: int) -> list[Attempt]:
        """The attempts whose job ended before that time, is deleted, or is unknown.

        Takes one lookup for each attempt, however many jobs there are: engines pass the attempts that are on disk.
        """
        ids = sorted({attempt.job for attempt in attempts})
        found = await self._driver.read_each(self._sql.finished, [(job_id,) for job_id in ids])
        unfinished = {
            job_id
            for job_id, result in zip(ids, found, strict=True)
            if result and not _finished(result[0], before)
        }
        return [attempt for attempt in attempts if attempt.job not in unfinished]

    async def size(self) -> int:
        """Bytes of the database."""
        return await self._driver.size()

    async def close(self) -> None:
        await self._queue.close()
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
                sql.insert_replica,
                [rows.replica_row(replica, rank) for rank, replica in enumerate(batch.attempts)],
            ),
            Step(
                sql.update_replica, [rows.replica_change(replica) for replica in batch.replicas], changes=True
            ),
            Step(sql.insert_event, [rows.event_row(event) for event in batch.events]),
            *self._amendments(batch),
        )
        return [step for step in steps if step.rows]

    def _document_row(self, job: Job, new: NewJob) -> rows.Row:
        job_id, document, spec = rows.document_row(job, new)
        return job_id, document, self._encryption.spec(job_id, spec)

    def _document(self, job_id: int, row: rows.Row) -> bytes | None:
        try:
            return self._encryption.document(job_id, rows.document_of(row))
        except Exception as error:  # noqa: BLE001 (as below)
            self.unreadable.note(f"the document of job {job_id}", error)
            return b""

    def _job(self, row: rows.Row, *, remember: bool = False) -> Job:
        try:
            return self._encryption.opened_job(rows.job_of(row), remember=remember)
        except Exception as error:  # noqa: BLE001 (one damaged job must not fail the whole list)
            self.unreadable.note(f"job {row[0]}", error)
            return rows.damaged_job_of(row)

    def _gang(self, found: list[rows.Row]) -> list[Replica]:
        return self.unreadable.read_rows(found, self._replica, "replica of job", 4)

    def _event(self, row: rows.Row) -> Event:
        return rows.event_of((*row[:-1], self._encryption.text(row[0], row[-1], "event")))

    def _replica(self, row: rows.Row) -> Replica:
        replica = rows.replica_of(row)
        replica.message = self._encryption.text(replica.job, replica.message, "replica")
        return replica

    def _past(self, row: rows.Row) -> PastAttempt:
        past = rows.past_of(row)
        message = self._encryption.text(past.job, past.message, "past")
        return past if message is past.message else replace(past, message=message)

    def _amendments(self, batch: Batch) -> Iterator[Step]:
        """The parts of a batch that are empty in most turns."""
        sql = self._sql
        labelled = [(job.id, new.labels) for job, new in batch.created if new.labels]
        if batch.labels:
            replaced = dict(batch.labels)
            yield Step(sql.delete_labels, [(job_id,) for job_id in replaced])
            labelled = [(job_id, labels) for job_id, labels in labelled if job_id not in replaced] + list(
                replaced.items()
            )
        if labelled:
            yield Step(
                sql.insert_label,
                [row for job_id, labels in labelled for row in rows.label_rows(job_id, labels)],
            )
        if batch.documents:
            changed = [(document, job_id) for job_id, document in batch.documents]
            yield Step(sql.update_document, changed, changes=True)
        if batch.past:
            yield Step(sql.insert_past, [rows.past_row(past) for past in batch.past])
        if batch.submissions:
            yield Step(
                sql.put_submission, [rows.submission_row(submission) for submission in batch.submissions]
            )
        if batch.samples:
            yield Step(
                sql.insert_sample, [rows.sample_row(attempt, sample) for attempt, sample in batch.samples]
            )
        if batch.audit:
            yield self.audit.step(batch.audit)
        if batch.deliveries:
            yield self.deliveries.step(batch.deliveries)
        yield from self.trials.steps(batch.new_trials, batch.trials, batch.measurements)


INLINE_ROWS = 100
"""A result with at most this many rows is read in the event loop's thread."""
ALL = (1 << 63) - 1


_OfJob = TypeVar("_OfJob", Replica, PastAttempt, Trial)


def _by_job(records: Iterable[_OfJob]) -> dict[int, list[_OfJob]]:
    found: dict[int, list[_OfJob]] = {}
    for record in records:
        found.setdefault(record.job, []).append(record)
    return found


def _finished(row: rows.Row, before: int) -> bool:
    state, ended, deleted = row
    if not isinstance(state, int) or not isinstance(ended, int | None):
        return False  # it is damaged
    return state >= FIRST_ENDED and (deleted is not None or ended is None or ended < before)
