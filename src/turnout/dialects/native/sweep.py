"""POST `/turnout/v1/sweep`, for root: removes expired data and reports what it removed, by kind."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects.native.auth import Guard
from turnout.dialects.native.event_stream import stream
from turnout.errors import Denied, Invalid
from turnout.service import Caller, Sweeper


def sweep_routes(sweeper: Sweeper, guarded: Guard) -> list[Route]:
    async def sweep(request: Request, caller: Caller) -> Response:
        if not caller.root:
            raise Denied("only the root key may sweep")
        dry = request.query_params.get("dry_run", "false").lower()
        if dry not in ("true", "false"):
            raise Invalid(f"dry_run must be true or false, not {dry!r}", field="dry_run")
        return await stream("swept", sweeper.run(dry=dry == "true"))

    return [Route("/turnout/v1/sweep", guarded(sweep), methods=["POST"])]
