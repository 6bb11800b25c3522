"""Jobs that name a key: what is kept of them is sealed before it is written, and opened when it is read.

Documents and specs are sealed as bytes; messages are texts, and a job's own message is sealed even if it is empty, so
that its row alone tells that it is such a job and with which data key. Names, labels, states and times stay readable:
they are what jobs are found by.
"""

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace as changed

from turnout.job import Event, Job, NewJob, Past, Program, Replica, Role, Search, Spec
from turnout.vault import Header, KeyGone, KeyRing, is_sealed, is_sealed_text

if TYPE_CHECKING:
    from turnout.store.store import Batch
    from turnout.vault.cipher import DataKey

_ENDED = 1000
"""So many jobs that have ended are remembered: something may still be written about them."""
_NOT_KEPT = "what was to be told here is not kept: the job's key is gone"

Told = TypeVar("Told", Event, Past, Replica)


class Locks:
    def __init__(self, ring: KeyRing) -> None:
        self.ring = ring
        self._keys: dict[int, DataKey | None] = {}
        """Of jobs that something may be written about; None: the key is gone."""
        self._ended: deque[int] = deque()

    # Before it is written.

    def sealed(self, batch: "Batch") -> "Batch":
        """The same batch if no such job is in it, which is nearly always so."""
        for job, new in batch.created:
            if new.spec.key:
                self._keys[job.id] = self.ring.data_key(Header.of(new.spec.key, new.spec.wrapped_key))
        if not self._keys:
            return batch
        found = replace(
            batch,
            created=[(self._job(job), self._new(job.id, new)) for job, new in batch.created],
            jobs=[self._job(job) for job in batch.jobs],
            attempts=[self._told(replica, "replica") for replica in batch.attempts],
            replicas=[self._told(replica, "replica") for replica in batch.replicas],
            events=[self._told(event, "event") for event in batch.events],
            past=[self._told(past, "past") for past in batch.past],
            documents=[(job_id, self._bytes(job_id, data, "document")) for job_id, data in batch.documents],
        )
        for job in batch.jobs:
            if not job.live and job.id in self._keys:
                self._forget_later(job.id)
        return found

    def spec(self, job_id: int, encoded: bytes) -> bytes:
        return self._bytes(job_id, encoded, "spec") if self._keys else encoded

    def trial(self, job_id: int, told: bytes) -> bytes:
        """What is told of a trial, by the key of its search."""
        # Where the key is gone nothing is known of it that would have to be kept from anybody.
        return self._bytes(job_id, told, "trial") if self._keys.get(job_id) else told

    def _job(self, job: Job) -> Job:
        return changed(job, message=self._text(job.id, job.message, "job")) if job.id in self._keys else job

    def _new(self, job_id: int, new: NewJob) -> NewJob:
        if job_id not in self._keys:
            return new
        return changed(new, document=self._bytes(job_id, new.document, "document"))

    def _told(self, told: Told, what: str) -> Told:
        if told.job not in self._keys or not told.message:
            return told
        return changed(told, message=self._text(told.job, told.message, what))

    def _text(self, job_id: int, text: str, what: str) -> str:
        key = self._keys[job_id]
        return key.seal_text(text, _about(job_id, what)) if key else _NOT_KEPT

    def _bytes(self, job_id: int, data: bytes, what: str) -> bytes:
        key = self._keys.get(job_id)
        if key:
            return key.seal(data, _about(job_id, what))
        if job_id in self._keys:
            raise KeyGone(f"the document of job {job_id} cannot be changed: its key is gone")
        return data

    # After it was read.

    def opened_job(self, job: Job, *, remember: bool = False) -> Job:
        """With its message; or why that cannot be read. `remember`: something may be written about it."""
        if not is_sealed_text(job.message):
            return job
        if remember and job.id not in self._keys:
            self._keys[job.id] = self._key_of(job.message)
            self._forget_later(job.id)
        job.message = self.text(job.id, job.message, "job")
        return job

    def text(self, job_id: int, text: str, what: str) -> str:
        if not is_sealed_text(text):
            return text
        try:
            return self.ring.opened_text(text, _about(job_id, what))
        except KeyGone as error:
            return error.message

    def document(self, job_id: int, data: bytes) -> bytes | None:
        """None: its key is gone."""
        return self._opened(job_id, data, "document")

    def opened_trial(self, job_id: int, data: bytes) -> bytes | None:
        """None: its key is gone."""
        return self._opened(job_id, data, "trial")

    def _opened(self, job_id: int, data: bytes, what: str) -> bytes | None:
        if not is_sealed(data):
            return data
        try:
            return self.ring.opened(data, _about(job_id, what))
        except KeyGone:
            return None

    def opened_spec(self, job_id: int, data: bytes) -> bytes:
        """Raises KeyGone."""
        return self.ring.opened(data, _about(job_id, "spec")) if is_sealed(data) else data

    def live(self, job: Job, spec: Spec, *, lost: bool) -> None:
        """A job that something will be written about, found when the service starts."""
        if spec.key:
            self._keys[job.id] = None if lost else self.ring.data_key(Header.of(spec.key, spec.wrapped_key))

    def _key_of(self, text: str) -> "DataKey | None":
        from turnout.vault.cipher import unmarked
        from turnout.vault.header import read_header

        found = read_header(unmarked(text))
        try:
            return self.ring.data_key(found[0]) if found else None
        except KeyGone:
            return None

    def _forget_later(self, job_id: int) -> None:
        self._ended.append(job_id)
        if len(self._ended) > _ENDED:
            self._keys.pop(self._ended.popleft(), None)


def stand_in(data: bytes, replicas: list[Replica], *, searches: bool) -> Spec:
    """For a job that lives although its key is gone: enough to see its replicas to their end, not to start any.

    `searches`: it has trials, which are jobs of their own.
    """
    from turnout.vault.header import read_header

    found = read_header(data)
    assert found is not None, "only what has a header can lack its key"
    names = dict.fromkeys(replica.role for replica in replicas) or {"lead": None}
    counts = {name: sum(replica.role == name for replica in replicas) or 1 for name in names}
    first = next(iter(names))
    roles = tuple(Role(name, Program(), count, leads=name == first) for name, count in counts.items())
    search = Search((), (), ()) if searches else None
    return Spec(roles, key=found[0].key, wrapped_key=found[0].text, search=search)


def _about(job_id: int, what: str) -> str:
    """So that no row's text opens in the place of another's."""
    return f"{what} of job {job_id}"
