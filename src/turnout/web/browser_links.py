"""The addresses under which people look into a running job: a shell in each replica, and the lead's own page."""

from urllib.parse import quote, urlsplit

from turnout.access.tickets import Errand
from turnout.service import Caller, Jobs, JobView
from turnout.web.dashboards import TICKET, Dashboards
from turnout.web.gate import DASHBOARD, SHELL, Gate
from turnout.web.shell import SHELLS

DASHBOARD_SUFFIX = ":dashboard"
"""Behind the replica's name, where the addresses of a job are listed by it."""


class Visits:
    def __init__(self, jobs: Jobs, gate: Gate, dashboards: Dashboards) -> None:
        self._jobs = jobs
        self._gate = gate
        self._dashboards = dashboards

    async def uris(self, caller: Caller, view: JobView, base: str) -> dict[str, str]:
        """By the replicas' names. `base` is how the caller reaches this service: `http://127.0.0.1:8470`.

        For callers only who may stop the job.
        """
        found = await self._jobs.visitable(view)
        row, base = view.job, base.rstrip("/")
        uris: dict[str, str] = {}
        for replica in found.shells:
            ticket = self._gate.issue(Errand(SHELL, row.project, row.id, replica, caller.key))
            path = f"{SHELLS}/{quote(row.project, safe='')}/{row.id}/{quote(replica, safe='')}"
            uris[replica] = f"{base}{path}?ticket={ticket}"
        if found.dashboard:
            ticket = self._gate.issue(Errand(DASHBOARD, row.project, row.id, found.dashboard, caller.key))
            port = await self._dashboards.open(row.project, row.id)
            root = f"{self._dashboards.scheme}://{_host(base)}:{port}/"
            uris[found.dashboard + DASHBOARD_SUFFIX] = f"{root}?{TICKET}={ticket}"
        return uris


def _host(base: str) -> str:
    name = urlsplit(base).hostname or "127.0.0.1"
    return f"[{name}]" if ":" in name else name
