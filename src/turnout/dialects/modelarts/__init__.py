"""Huawei Cloud ModelArts: the training jobs of API v2 (`/v2/{project_id}/…`), workspaces, and a part of IAM.

`routes` finds the handler of a call. The handlers are in the folders: `jobs`, `algorithms`, `catalogue` (engines,
flavors and pools), `search` (hyper-parameter search), `observe` (logs, events, metrics), `account`. `translate` turns a
document into a job, with `program` for what runs in the container; `jobs/render` turns a job into a document again.
"""

from functools import partial

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from turnout.dialects import Context, Conversion
from turnout.dialects.modelarts import convert
from turnout.dialects.modelarts.jobs.handlers import submit
from turnout.dialects.modelarts.observe.log_handlers import link_route
from turnout.dialects.modelarts.observe.logs import LINK_PATH
from turnout.dialects.modelarts.routes import Endpoint, owns
from turnout.dialects.modelarts.search.trial_jobs import trial_job
from turnout.job import Job, NewJob, Trial
from turnout.service import Caller, JobView

__all__ = ["ModelArts"]


class ModelArts:
    name = "modelarts"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._api = Endpoint(context)
        self._links = Starlette(routes=[link_route(context)])
        self.conversion = Conversion(convert.portable, partial(convert.convert, settings=context.settings))

    def owns(self, scope: Scope) -> bool:
        return owns(scope["path"]) or scope["path"].startswith(LINK_PATH + "/")

    async def run(self) -> None:
        """There is nothing to do between requests."""

    def make_trial_job(self, parent: JobView, trial: Trial) -> NewJob:
        return trial_job(parent, trial, self._context.settings, self._context.images)

    async def submit(self, caller: Caller, body: bytes, location: str) -> Job:
        job, _ = await submit(self._context, caller, body)
        return job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._links if scope["path"].startswith(LINK_PATH + "/") else self._api
        await app(scope, receive, send)
