"""Calls that this service refuses, with the codes that clients know."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import fields
from turnout.dialects.modelarts.context import Context, Handler, Routes
from turnout.dialects.modelarts.errors import NOT_DEBUG, UNSUPPORTED
from turnout.dialects.modelarts.jobs import lookup
from turnout.dialects.modelarts.observe import tasks
from turnout.errors import Unsupported, WrongState
from turnout.service import Caller


class _Image(msgspec.Struct):
    name: str
    namespace: str
    tag: str
    description: str | None = None


async def save_image(context: Context, request: Request, caller: Caller) -> Response:
    await fields.read(request, _Image)
    raise await _no_container(context, request, caller)


async def show_image(context: Context, request: Request, caller: Caller) -> Response:
    raise await _no_container(context, request, caller)


def refuse(message: str) -> Handler:
    async def handler(context: Context, request: Request, caller: Caller) -> Response:
        if "training_job_id" in request.path_params:
            await lookup.job(context, request, caller)
        raise Unsupported(message, code=UNSUPPORTED)

    return handler


_JOB = "/training-jobs/{training_job_id}"
_NO_TUNING = refuse("This service does not support fine-tuning jobs and their artifacts.")
ROUTES: Routes = [
    ("POST", _JOB + "/tasks/{task_id}/save-image-job", save_image),
    ("GET", _JOB + "/tasks/{task_id}/save-image-job", show_image),
    ("GET", _JOB + "/route_plan", refuse("This service has no NPUs, and so no plan of their routes.")),
    ("GET", _JOB + "/ft-artifacts", _NO_TUNING),
    ("POST", _JOB + "/ft-artifacts/publish", _NO_TUNING),
    ("GET", _JOB + "/ft-detail", _NO_TUNING),
    ("GET", _JOB + "/ft-metrics", _NO_TUNING),
]


async def _no_container(context: Context, request: Request, caller: Caller) -> WrongState:
    view = await lookup.job(context, request, caller)
    tasks.replica_name(await context.jobs.spec(view), request.path_params["task_id"])
    return WrongState(
        "The task has no container to save as an image: this service runs tasks without one.",
        code=NOT_DEBUG,
    )
