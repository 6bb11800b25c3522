"""The signature of a handler. The services that it can use are the Context of every dialect."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects import Context
from turnout.service import Caller

__all__ = ["Context", "Handler", "Routes"]

Handler = Callable[[Context, Request, Caller], Awaitable[Response]]
Routes = list[tuple[str, str, Handler]]
"""(method, path below `/v2/{project_id}`, handler). A path that begins with `/v1/` or `/v3` is complete."""
