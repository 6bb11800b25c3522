"""A package for each API, all of the same shape.

`wire` holds the documents as typed structs and is the only place that spells the API's field names; `translate` knows
both the documents and the job model; `errors` turns our errors into the API's codes; `routes` has the class that
implements `Dialect`. Catalogues are data files. `native` is Turnout's own API: it creates no jobs, so it has no
`translate`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnout.access import Keys
from turnout.bodies import Bodies
from turnout.config import Settings
from turnout.job import NewJob, Trial
from turnout.service import Assets, Caller, Clusters, Jobs, JobView, Logs, Objects, Searches, Sources, Sweeper

__all__ = ["Context", "Dialect", "MakeTrialJob", "WebAccess"]

MakeTrialJob = Callable[[JobView, Trial], NewJob]
"""Makes the job that runs one trial of a search."""


class WebAccess(Protocol):
    async def __call__(self, caller: Caller, view: JobView, base: str) -> Mapping[str, str]:
        """The links to a job's shells and dashboards by replica. `base` is the URL that the caller used."""
        ...


class Context(NamedTuple):
    """The services that every dialect is built from and that its handlers use."""

    jobs: Jobs
    logs: Logs
    searches: Searches
    assets: Assets
    objects: Objects
    sweeper: Sweeper
    sources: Sources
    clusters: Clusters
    keys: Keys
    settings: Settings
    bodies: Bodies
    web_access: WebAccess
    home_page: Callable[[Request], Awaitable[Response]]
    """The page that a browser gets at `/`."""
    clock: Callable[[], int]
    """Nanoseconds since 1970."""


class Dialect(Protocol):
    """One API, as an ASGI application. The constructor takes the Context."""

    name: str
    """The `dialect` of the jobs that are created through this API."""

    def owns(self, scope: Scope) -> bool:
        """Whether an HTTP request is for this API, by its path, method and headers.

        Called for every request, in the order of the list in `app`. The first dialect that returns True answers it.
        """
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that it owns, errors included."""
        ...

    @property
    def make_trial_job(self) -> MakeTrialJob | None:
        """None if jobs of this API cannot be searches."""
        ...
