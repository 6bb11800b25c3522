"""What a program reports about itself, and calls that are refused in a way that clients understand."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import body, find, reply, tasks
from turnout.dialects.modelarts.errors import INVALID, NOT_DEBUG, UNSUPPORTED
from turnout.dialects.modelarts.house import Handler, House, Routes
from turnout.errors import Invalid, Unsupported, WrongState
from turnout.service import Caller

REPORT_TYPES = ("training-event",)


class _Report(msgspec.Struct):
    type: str


class _Image(msgspec.Struct):
    name: str
    namespace: str
    tag: str
    description: str | None = None


async def notify(house: House, request: Request, caller: Caller) -> Response:
    """Kept as an event of the job: nothing else follows from it."""
    asked = await body.read(request, _Report)
    kind = request.path_params["report_type"]
    if kind not in REPORT_TYPES:
        raise Invalid(
            f"report_type must be {' or '.join(REPORT_TYPES)}, not {kind!r}.",
            field="report_type",
            code=INVALID,
        )
    what = body.text("type", asked.type, 256)
    view = await find.job(house, request, caller)
    task = tasks.find(await house.jobs.spec(view), request.path_params["task_id"])
    await house.jobs.note(caller, view.job.id, f"{task} reports {what}")
    return reply.json(None)


async def save_image(house: House, request: Request, caller: Caller) -> Response:
    await body.read(request, _Image)
    raise await _no_container(house, request, caller)


async def show_image(house: House, request: Request, caller: Caller) -> Response:
    raise await _no_container(house, request, caller)


def not_offered(what: str) -> Handler:
    async def refuse(house: House, request: Request, caller: Caller) -> Response:
        if "training_job_id" in request.path_params:
            await find.job(house, request, caller)
        raise Unsupported(f"{what} here.", code=UNSUPPORTED)

    return refuse


_JOB = "/training-jobs/{training_job_id}"
_NO_TUNING = not_offered("Fine-tuning jobs and their artifacts are not offered")
ROUTES: Routes = [
    ("POST", _JOB + "/tasks/{task_id}/reports/{report_type}", notify),
    ("POST", _JOB + "/tasks/{task_id}/save-image-job", save_image),
    ("GET", _JOB + "/tasks/{task_id}/save-image-job", show_image),
    ("GET", _JOB + "/route_plan", not_offered("There are no NPUs, so there is no plan of their routes")),
    ("GET", _JOB + "/ft-artifacts", _NO_TUNING),
    ("POST", _JOB + "/ft-artifacts/publish", _NO_TUNING),
    ("GET", _JOB + "/ft-detail", _NO_TUNING),
    ("GET", _JOB + "/ft-metrics", _NO_TUNING),
]


async def _no_container(house: House, request: Request, caller: Caller) -> WrongState:
    view = await find.job(house, request, caller)
    tasks.find(await house.jobs.spec(view), request.path_params["task_id"])
    return WrongState(
        "The task has no container whose image could be saved: none is made here.", code=NOT_DEBUG
    )
