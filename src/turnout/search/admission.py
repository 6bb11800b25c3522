"""Which live searches run. Of those that the scheduler treats alike, a limited number waits for a free node at a time.

An admitted search that waits takes a task, a study and a queued trial; of a held search, this module stores only the
id. So a project that creates searches faster than they end does not fill the memory.
"""

from collections.abc import Callable, Hashable

MOST_WAITING = 100
"""Searches of one kind that wait at a time."""


class Admission:
    def __init__(self, admit: Callable[[int, Hashable], None], most_waiting: int) -> None:
        """`admit` starts a search, which counts as waiting until it is reported to run or to have ended."""
        self._admit = admit
        self._most = most_waiting
        self._held: dict[Hashable, dict[int, None]] = {}
        """The held searches of each kind, in the order in which they came."""
        self._kinds: dict[int, Hashable] = {}
        """The kind of each held search."""
        self._waiting: dict[Hashable, set[int]] = {}
        """Admitted searches of each kind without a running trial."""

    def hold(self, job_id: int, kind: Hashable) -> None:
        """Admit the search at once, or when fewer of its kind wait. If it is held, it changes to this kind."""
        if self._kinds.get(job_id) != kind:
            self.drop(job_id)
            self._held.setdefault(kind, {})[job_id] = None
            self._kinds[job_id] = kind
            self._admit_next(kind)

    def drop(self, job_id: int) -> None:
        """Does nothing if it is not held."""
        if job_id not in self._kinds:
            return
        kind = self._kinds.pop(job_id)
        del self._held[kind][job_id]
        if not self._held[kind]:
            del self._held[kind]

    def waits(self, job_id: int, kind: Hashable) -> None:
        """A search that runs has no running trial at the moment. It is not held again, whatever the limit."""
        self._waiting.setdefault(kind, set()).add(job_id)

    def leaves(self, job_id: int, kind: Hashable) -> None:
        """A trial of the search runs, or the search has ended."""
        if waiting := self._waiting.get(kind):
            waiting.discard(job_id)
            if not waiting:
                del self._waiting[kind]
        self._admit_next(kind)

    def _admit_next(self, kind: Hashable) -> None:
        while (held := self._held.get(kind)) and len(self._waiting.get(kind, ())) < self._most:
            job_id = next(iter(held))
            self.drop(job_id)
            self.waits(job_id, kind)
            self._admit(job_id, kind)
