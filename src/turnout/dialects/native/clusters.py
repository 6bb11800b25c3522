"""`/turnout/v1/clusters`: the list for everybody; `check`, `drain` and `resume` for root."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects.native import reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.event_stream import stream
from turnout.errors import Denied
from turnout.service import Caller, Clusters


def cluster_routes(clusters: Clusters, guarded: Guard) -> list[Route]:
    async def show(request: Request, caller: Caller) -> Response:
        return reply.json({"clusters": [one._asdict() for one in clusters.all()]})

    async def drain(request: Request, caller: Caller) -> Response:
        _check_root(caller)
        await clusters.drain(request.path_params["name"], True)
        return reply.json({})

    async def resume(request: Request, caller: Caller) -> Response:
        _check_root(caller)
        await clusters.drain(request.path_params["name"], False)
        return reply.json({})

    async def check(request: Request, caller: Caller) -> Response:
        _check_root(caller)
        results = clusters.check(request.path_params["name"])
        return await stream("check", (result._asdict() async for result in results))

    return [
        Route("/turnout/v1/clusters", guarded(show)),
        Route("/turnout/v1/clusters/{name}/check", guarded(check), methods=["POST"]),
        Route("/turnout/v1/clusters/{name}/drain", guarded(drain), methods=["POST"]),
        Route("/turnout/v1/clusters/{name}/resume", guarded(resume), methods=["POST"]),
    ]


def _check_root(caller: Caller) -> None:
    if not caller.root:
        raise Denied("only the root key may check and drain clusters")
