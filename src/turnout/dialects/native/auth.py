"""Who asks, and what is answered when something goes wrong."""

import time
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from turnout import errors
from turnout.access import Keys, check_bearer
from turnout.dialects.native import errors as answers
from turnout.service import Caller

Handler = Callable[[Request, Caller], Awaitable[Response]]
Guard = Callable[[Handler], Callable[[Request], Awaitable[Response]]]


def guard(keys: Keys, no_auth: bool) -> Guard:
    def guarded(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                return await handler(request, _caller(request, keys, no_auth))
            except errors.TurnoutError as error:
                return answers.answer(error)
            except ClientDisconnect:
                return answers.answer(errors.Invalid("the client has gone"))
            except Exception as error:  # noqa: BLE001 (no traceback may reach a user)
                return answers.unexpected(request, error)

        return endpoint

    return guarded


def _caller(request: Request, keys: Keys, no_auth: bool) -> Caller:
    if no_auth:
        return Caller("anyone", keys.root.project, root=True)
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise errors.Unauthenticated(
            "send Authorization: Bearer <token>; `turnout` and `tictl` make it from your key"
        )
    bearer = check_bearer(keys, token.strip(), time.time())
    return Caller(bearer.key.id, bearer.project, bearer.key.root and not bearer.only)
