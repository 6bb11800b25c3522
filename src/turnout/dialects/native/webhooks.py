"""GET `/turnout/v1/webhooks`, for root: which messages wait for each webhook, and which it did not accept."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects import Context
from turnout.dialects.native import reply
from turnout.dialects.native.auth import Guard
from turnout.errors import Denied
from turnout.job import Delivery
from turnout.service import Caller, HookStatus


class FailureDocument(msgspec.Struct):
    id: str
    """As in the header `webhook-id`."""
    job: str
    project: str
    at: int
    attempts: int
    next_at: int | None
    """When it is sent again; None if it was given up."""
    error: str


class WebhookDocument(msgspec.Struct):
    name: str
    address: str
    """Without the path, which may be a secret."""
    format: str
    trouble: str
    """Why the last message was not accepted; empty if it was."""
    waiting: int
    failing: int
    """How many of the waiting messages failed at least once."""
    given_up: int
    oldest: int | None
    """When the oldest waiting message was made."""
    failures: list[FailureDocument]
    """The newest."""


def webhook_routes(context: Context, guarded: Guard) -> list[Route]:
    async def webhooks(request: Request, caller: Caller) -> Response:
        if not caller.root:
            raise Denied("only the root key may see webhooks")
        return reply.json({"webhooks": [_document(one) for one in await context.webhooks.status()]})

    return [Route("/turnout/v1/webhooks", guarded(webhooks))]


def _document(one: HookStatus) -> WebhookDocument:
    failures = [_failure(delivery) for delivery in one.failures]
    return WebhookDocument(one.name, one.address, one.format, one.trouble, *one.counts, failures=failures)


def _failure(one: Delivery) -> FailureDocument:
    next_at = one.next_at if one.given_up is None else None
    return FailureDocument(one.id, str(one.job), one.project, one.at, one.attempts, next_at, one.error)
