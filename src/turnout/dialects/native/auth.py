"""Authentication of the caller, and the response to an error."""

import time
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from turnout import errors
from turnout.access import Keys, bearer_token, check_bearer, may_use
from turnout.dialects.native.errors import error_response, internal_error
from turnout.service import Caller

Handler = Callable[[Request, Caller], Awaitable[Response]]
Guard = Callable[[Handler], Callable[[Request], Awaitable[Response]]]


def guard(keys: Keys, no_auth: bool) -> Guard:
    def guarded(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                return await handler(request, _caller(request, keys, no_auth))
            except errors.TurnoutError as error:
                return error_response(error)
            except ClientDisconnect:
                return error_response(errors.Invalid("the client disconnected"))
            except Exception as error:  # noqa: BLE001 (no traceback may reach a user)
                return internal_error(request, error)

        return endpoint

    return guarded


def _caller(request: Request, keys: Keys, no_auth: bool) -> Caller:
    """The caller, acting in the project of the parameter `project` or, without it, in its own project."""
    project = request.query_params.get("project", "")
    if no_auth:
        if project:
            may_use(keys.root, project)
        return Caller("anyone", project or keys.root.project, root=True)
    token = bearer_token(request.headers.get("authorization", ""))
    if not token:
        raise errors.Unauthenticated(
            "send Authorization: Bearer <token>; `turnout` and `tictl` make it from your key"
        )
    bearer = check_bearer(keys, token, time.time())
    if project and bearer.limited_to and bearer.limited_to != project:
        raise errors.Denied(f"the token is for the project {bearer.limited_to} and may not act in {project}")
    if project:
        may_use(bearer.key, project)
    return Caller(bearer.key.id, project or bearer.project, bearer.key.root and not bearer.limited_to)
