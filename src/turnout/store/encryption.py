"""Encrypts rows of jobs that name a key before they are written, and decrypts them when they are read.

Documents and specs are sealed as bytes; messages are texts, and a job's own message is sealed even if it is empty, so
that its row alone shows that the job is encrypted and with which data key. Names, labels, states and times stay
readable, because queries use them.
"""

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace as changed

from turnout.job import Event, Job, NewJob, PastAttempt, Program, Replica, Role, Search, Spec
from turnout.vault import Header, KeyGone, KeyRing, is_sealed, is_sealed_text

if TYPE_CHECKING:
    from turnout.store.store import Batch
    from turnout.vault.cipher import DataKey

_ENDED = 1000
"""The data keys of this many ended jobs stay cached, because more rows may be written for them."""
_NOT_STORED = "this text was not stored: the job's key is missing"

Record = TypeVar("Record", Event, PastAttempt, Replica)


class StoreEncryption:
    def __init__(self, ring: KeyRing) -> None:
        self.ring = ring
        self._keys: dict[int, DataKey | None] = {}
        """The data keys of jobs that may be written about; None if the key is missing."""
        self._ended: deque[int] = deque()

    # Before rows are written.

    def sealed(self, batch: "Batch") -> "Batch":
        """The same batch if no job in it is encrypted, which is the usual case."""
        for job, new in batch.created:
            if new.spec.key:
                self._keys[job.id] = self.ring.data_key(Header.of(new.spec.key, new.spec.wrapped_key))
        if not self._keys:
            return batch
        found = replace(
            batch,
            created=[(self._job(job), self._new(job.id, new)) for job, new in batch.created],
            jobs=[self._job(job) for job in batch.jobs],
            attempts=[self._message(replica, "replica") for replica in batch.attempts],
            replicas=[self._message(replica, "replica") for replica in batch.replicas],
            events=[self._message(event, "event") for event in batch.events],
            past=[self._message(past, "past") for past in batch.past],
            documents=[(job_id, self._bytes(job_id, data, "document")) for job_id, data in batch.documents],
        )
        for job in batch.jobs:
            if not job.live and job.id in self._keys:
                self._forget_later(job.id)
        return found

    def spec(self, job_id: int, encoded: bytes) -> bytes:
        return self._bytes(job_id, encoded, "spec") if self._keys else encoded

    def trial(self, job_id: int, data: bytes) -> bytes:
        """A trial's texts, encrypted with the key of its search."""
        # Without the key there is nothing secret to write.
        return self._bytes(job_id, data, "trial") if self._keys.get(job_id) else data

    def _job(self, job: Job) -> Job:
        return changed(job, message=self._text(job.id, job.message, "job")) if job.id in self._keys else job

    def _new(self, job_id: int, new: NewJob) -> NewJob:
        if job_id not in self._keys:
            return new
        return changed(new, document=self._bytes(job_id, new.document, "document"))

    def _message(self, record: Record, kind: str) -> Record:
        if record.job not in self._keys or not record.message:
            return record
        return changed(record, message=self._text(record.job, record.message, kind))

    def _text(self, job_id: int, text: str, kind: str) -> str:
        key = self._keys[job_id]
        return key.seal_text(text, _row_name(job_id, kind)) if key else _NOT_STORED

    def _bytes(self, job_id: int, data: bytes, kind: str) -> bytes:
        key = self._keys.get(job_id)
        if key:
            return key.seal(data, _row_name(job_id, kind))
        if job_id in self._keys:
            raise KeyGone(f"the document of job {job_id} cannot be changed: its key is missing")
        return data

    # After rows are read.

    def opened_job(self, job: Job, *, remember: bool = False) -> Job:
        """The job with its message, or with why that cannot be read. `remember`: more may be written about the job."""
        if not is_sealed_text(job.message):
            return job
        if remember and job.id not in self._keys:
            self._keys[job.id] = self._key_of(job.message)
            self._forget_later(job.id)
        job.message = self.text(job.id, job.message, "job")
        return job

    def text(self, job_id: int, text: str, kind: str) -> str:
        if not is_sealed_text(text):
            return text
        try:
            return self.ring.opened_text(text, _row_name(job_id, kind))
        except KeyGone as error:
            return error.message

    def document(self, job_id: int, data: bytes) -> bytes | None:
        """None if its key is missing."""
        return self._opened(job_id, data, "document")

    def opened_trial(self, job_id: int, data: bytes) -> bytes | None:
        """None if its key is missing."""
        return self._opened(job_id, data, "trial")

    def _opened(self, job_id: int, data: bytes, kind: str) -> bytes | None:
        if not is_sealed(data):
            return data
        try:
            return self.ring.opened(data, _row_name(job_id, kind))
        except KeyGone:
            return None

    def opened_spec(self, job_id: int, data: bytes) -> bytes:
        """Raises KeyGone."""
        return self.ring.opened(data, _row_name(job_id, "spec")) if is_sealed(data) else data

    def register(self, job: Job, spec: Spec, *, lost: bool) -> None:
        """Registers a live job when the service starts, because more will be written about it."""
        if spec.key:
            self._keys[job.id] = None if lost else self.ring.data_key(Header.of(spec.key, spec.wrapped_key))

    def _key_of(self, text: str) -> "DataKey | None":
        from turnout.vault.cipher import sealed_bytes
        from turnout.vault.header import read_header

        found = read_header(sealed_bytes(text))
        try:
            return self.ring.data_key(found[0]) if found else None
        except KeyGone:
            return None

    def _forget_later(self, job_id: int) -> None:
        self._ended.append(job_id)
        if len(self._ended) > _ENDED:
            self._keys.pop(self._ended.popleft(), None)


def placeholder_spec(data: bytes, replicas: list[Replica], *, is_search: bool) -> Spec:
    """For a live job whose key is missing or whose spec cannot be read.

    It is sufficient to end the job's replicas, not to start any.
    `is_search`: the job has trials, which are jobs of their own.
    """
    from turnout.vault.header import read_header

    found = read_header(data)
    names = dict.fromkeys(replica.role for replica in replicas) or {"lead": None}
    counts = {name: sum(replica.role == name for replica in replicas) or 1 for name in names}
    first = next(iter(names))
    roles = tuple(Role(name, Program(), count, leads=name == first) for name, count in counts.items())
    search = Search((), (), ()) if is_search else None
    if found is None:
        return Spec(roles, search=search)
    return Spec(roles, key=found[0].key, wrapped_key=found[0].text, search=search)


def _row_name(job_id: int, kind: str) -> str:
    """Binds a text to its row, so that it cannot be decrypted in place of another row's."""
    return f"{kind} of job {job_id}"
