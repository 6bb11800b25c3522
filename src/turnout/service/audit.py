"""Reads the audit trail."""

from turnout.job import AuditLine
from turnout.store import Store
from turnout.store.audit import AuditFilter as AuditFilter


class Audit:
    def __init__(self, store: Store) -> None:
        self._audit = store.audit

    async def add(self, line: AuditLine) -> None:
        """Adds a line, which is on disk when this returns. Raises StoreError."""
        await self._audit.add(line)

    async def find(self, wanted: AuditFilter, limit: int) -> list[AuditLine]:
        """The newest first."""
        return await self._audit.find(wanted, limit)

    async def of_job(self, job_id: int, limit: int) -> list[AuditLine]:
        """The newest `limit` lines about a job, the oldest of them first."""
        return (await self._audit.find(AuditFilter(job=job_id), limit))[::-1]
