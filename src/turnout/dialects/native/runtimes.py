"""`/turnout/v1/runtimes`, for root: the list; `make` and `check` stream what they do."""

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects.native import reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.event_stream import stream
from turnout.errors import Denied
from turnout.service import Caller, RuntimeOperations


class RuntimeDocument(msgspec.Struct):
    name: str
    state: str
    """`ready`, `making`, `not made` or `failed`."""
    default: bool
    """Whether jobs run in it whose own runtime has no meaning here."""
    python: str
    path: str
    """Its interpreter."""
    packages: list[str]
    """What it asks for; empty: it is an interpreter that the settings name."""
    installed: list[str]
    size: int
    made: int | None
    used: int | None
    why: str
    """Why it could not be made."""


def runtime_routes(runtimes: RuntimeOperations, guarded: Guard) -> list[Route]:
    async def show(request: Request, caller: Caller) -> Response:
        _check_root(caller)
        return reply.json({"runtimes": [RuntimeDocument(*one) for one in await runtimes.all()]})

    async def make(request: Request, caller: Caller) -> Response:
        _check_root(caller)
        name = request.path_params["name"]

        async def lines() -> AsyncIterator[object]:
            async for line in runtimes.make(name):
                yield {"line": line}

        return await stream("progress", lines())

    async def check(request: Request, caller: Caller) -> Response:
        _check_root(caller)
        results = runtimes.check(request.path_params["name"])
        return await stream("check", (result._asdict() async for result in results))

    return [
        Route("/turnout/v1/runtimes", guarded(show)),
        # `path`, because a runtime may be called like an image.
        Route("/turnout/v1/runtimes/{name:path}/make", guarded(make), methods=["POST"]),
        Route("/turnout/v1/runtimes/{name:path}/check", guarded(check), methods=["POST"]),
    ]


def _check_root(caller: Caller) -> None:
    if not caller.root:
        raise Denied("only the root key may see and make runtimes")
