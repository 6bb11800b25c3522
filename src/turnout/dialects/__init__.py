"""A package for each API, all of the same shape.

`wire` holds the documents as typed structs and is the only place that spells the API's field names; `translate` knows
both the documents and the job model; `errors` turns our errors into the API's codes; `routes` has the class that
implements `Dialect`. Catalogues are data files. `native` is Turnout's own API: it creates no jobs, so it has no
`translate`; it hands documents of the other APIs to their `submit`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnout.access import Keys, PageSessions
from turnout.bodies import Bodies
from turnout.config import Settings
from turnout.images import ImageCache
from turnout.job import Job, NewJob, Spec, Trial
from turnout.job.portable import Converted, Portable
from turnout.service import (
    Assets,
    Audit,
    Caller,
    Clusters,
    Jobs,
    JobView,
    Logs,
    Objects,
    RuntimeOperations,
    Searches,
    Sources,
    Sweeper,
    Webhooks,
)
from turnout.service.images import ImageRules

__all__ = ["Context", "Conversion", "Dialect", "MakeTrialJob", "Submit", "WebAccess"]

MakeTrialJob = Callable[[JobView, Trial], NewJob]
"""Makes the job that runs one trial of a search."""


Submit = Callable[[Caller, bytes, str], Awaitable[Job]]
"""Creates a job from a request body of an API, as a create call of that API does.

The last argument is the location, for an API whose addresses have one.
"""


class Conversion(NamedTuple):
    """How a job of this API becomes one of another API."""

    portable: Callable[[Spec], Portable]
    convert: Callable[[Job, Portable], Converted]
    """The document for a job of another API."""


class WebAccess(Protocol):
    async def __call__(self, caller: Caller, view: JobView, base: str) -> Mapping[str, str]:
        """The links to a job's shells and program's page by replica. `base` is the URL that the caller used."""
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
    images: ImageRules
    """What stands for the images of jobs."""
    runtimes: RuntimeOperations
    image_cache: ImageCache
    audit: Audit
    webhooks: Webhooks
    keys: Keys
    page_sessions: PageSessions
    settings: Settings
    bodies: Bodies
    web_access: WebAccess
    home_page: Callable[[Request], Awaitable[Response]]
    """The page that a browser gets at `/`."""
    submit: Mapping[str, Submit]
    """By the name of the dialect."""
    conversions: Mapping[str, Conversion]
    """The same."""
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

    async def run(self) -> None:
        """Does what no request does, for as long as the service runs; called once, after the controller has started.

        Returns at once if there is nothing to do. Cancelled when the service stops.
        """
        ...

    @property
    def submit(self) -> Submit | None:
        """None if this API creates no jobs."""
        ...

    @property
    def conversion(self) -> Conversion | None:
        """None if this API creates no jobs."""
        ...

    @property
    def make_trial_job(self) -> MakeTrialJob | None:
        """None if jobs of this API cannot be searches."""
        ...
