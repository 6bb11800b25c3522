"""Links to the shells and the dashboard of a running job, whichever API it was created through."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects.native.guard import Guard
from turnout.service import Caller, Jobs, JobView

Uris = Callable[[Caller, JobView, str], Awaitable[dict[str, str]]]


def shell_routes(jobs: Jobs, uris: Uris, guarded: Guard) -> list[Route]:
    async def shells(request: Request, caller: Caller) -> Response:
        cluster = request.query_params.get("cluster", "")
        view = await jobs.by_reference(caller, request.path_params["job"], cluster)
        found = await uris(caller, view, str(request.base_url))
        return Response(
            msgspec.json.encode({"uris": found}),
            media_type="application/json",
            headers={"Cache-Control": "no-store"},
        )

    return [Route("/turnout/v1/jobs/{job:path}/shells", guarded(shells))]
