"""Authentication of the caller, and the response to an error."""

import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from turnout import errors
from turnout.access import Key, Keys, PageSessions, bearer_token, check_bearer, may_use
from turnout.access.page_sessions import COOKIE, HEADER
from turnout.dialects.native.errors import error_response, internal_error
from turnout.service import Caller, calls

Handler = Callable[[Request, Caller], Awaitable[Response]]
Guard = Callable[[Handler], Callable[[Request], Awaitable[Response]]]


def guard(keys: Keys, sessions: PageSessions, no_auth: bool) -> Guard:
    """A caller has a bearer token; the page, a session; a download that the page began, a ticket."""

    def guarded(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                caller = _caller(request, keys, sessions, no_auth)
                calls.identify(caller.key, caller.project)
                return await handler(request, caller)
            except errors.TurnoutError as error:
                return error_response(error)
            except ClientDisconnect:
                return error_response(errors.Invalid("the client disconnected"))
            except Exception as error:  # noqa: BLE001 (no traceback may reach a user)
                return internal_error(request, error)

        return endpoint

    return guarded


def _caller(request: Request, keys: Keys, sessions: PageSessions, no_auth: bool) -> Caller:
    """The caller, acting in the project of the parameter `project` or, without it, in its own project."""
    project = request.query_params.get("project", "")
    if no_auth:
        if project:
            may_use(keys.root, project)
        return Caller("anyone", project or keys.root.project, root=True)
    token = bearer_token(request.headers.get("authorization", ""))
    page_key = None if token else _page_key(request, sessions)
    if page_key:
        if project:
            may_use(page_key, project)
        return Caller(page_key.id, project or page_key.project, page_key.root)
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


def _page_key(request: Request, sessions: PageSessions) -> Key | None:
    """The key of the page's session or ticket; None if the request has neither."""
    now = time.time()
    if request.method == "GET" and (ticket := request.query_params.get("ticket")):
        query = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "ticket"])
        return sessions.redeem(ticket, f"{request.url.path}?{query}", now)
    cookie = request.cookies.get(COOKIE)
    return sessions.check(cookie, request.headers.get(HEADER, ""), now) if cookie else None
