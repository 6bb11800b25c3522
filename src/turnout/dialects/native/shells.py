"""Links to the shells and the program's page of a running job, whichever API it was created through."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects import WebAccess
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.lookup import find_job
from turnout.service import Caller, Jobs


def shell_routes(jobs: Jobs, web_access: WebAccess, guarded: Guard) -> list[Route]:
    async def shells(request: Request, caller: Caller) -> Response:
        found = await find_job(jobs, request, caller)
        uris = await web_access(found.caller, found.view, str(request.base_url))
        return Response(
            msgspec.json.encode({"uris": uris}),
            media_type="application/json",
            headers={"Cache-Control": "no-store"},
        )

    return [Route("/turnout/v1/jobs/{job:path}/shells", guarded(shells))]
