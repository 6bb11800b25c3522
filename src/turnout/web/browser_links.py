"""Links to the shells of a running job's replicas, and to the page of its program."""

from urllib.parse import quote, urlsplit

from turnout.access.tickets import Grant
from turnout.service import Caller, Jobs, JobView
from turnout.web.browser_access import PROGRAM_PAGE, SHELL, BrowserAccess
from turnout.web.program_pages import TICKET, ProgramPages
from turnout.web.shell import SHELLS

DASHBOARD_SUFFIX = ":dashboard"
"""Appended to the replica's name in the list of a job's links."""


class BrowserLinks:
    def __init__(self, jobs: Jobs, browser_access: BrowserAccess, program_pages: ProgramPages) -> None:
        self._jobs = jobs
        self._access = browser_access
        self._program_pages = program_pages

    async def uris(self, caller: Caller, view: JobView, base: str) -> dict[str, str]:
        """By the replicas' names. `base` is the URL of this service for the caller: `http://127.0.0.1:8470`.

        The caller must be allowed to stop the job.
        """
        found = await self._jobs.browser_targets(view)
        row, base = view.job, base.rstrip("/")
        uris: dict[str, str] = {}
        for replica in found.shells:
            ticket = self._access.issue(Grant(SHELL, row.project, row.id, replica, caller.key))
            path = f"{SHELLS}/{quote(row.project, safe='')}/{row.id}/{quote(replica, safe='')}"
            uris[replica] = f"{base}{path}?ticket={ticket}"
        if found.program_page:
            ticket = self._access.issue(
                Grant(PROGRAM_PAGE, row.project, row.id, found.program_page, caller.key)
            )
            port = await self._program_pages.open(row.project, row.id)
            root = f"{self._program_pages.scheme}://{_host(base)}:{port}/"
            uris[found.program_page + DASHBOARD_SUFFIX] = f"{root}?{TICKET}={ticket}"
        return uris


def _host(base: str) -> str:
    name = urlsplit(base).hostname or "127.0.0.1"
    return f"[{name}]" if ":" in name else name
