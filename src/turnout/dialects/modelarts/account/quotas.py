"""Quotas for the number of training jobs of a project or of one of its users."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import fields, reply
from turnout.dialects.modelarts.context import Context, Routes
from turnout.dialects.modelarts.errors import INVALID, OVER_QUOTA
from turnout.dialects.modelarts.names import DIALECT, TRIAL_SCOPE
from turnout.errors import AlreadyExists, Invalid, NotFound, Unavailable
from turnout.job import All, Asset, Compare, Label, Not, Query
from turnout.service import Caller

KIND = "training-quota"
JOBS = "job-num"
UNLIMITED = 2**31 - 1
RESOURCES = (JOBS, "visual-job-num", "job-retention-enabled", "job-num-quota-notify")
"""Only the first one has an effect."""


class _Item(msgspec.Struct, omit_defaults=True):
    resource: str
    quota: int
    used: int | None = None
    extra_info: str = ""


class _QuotaBody(msgspec.Struct):
    quotas: list[_Item]
    user_id: str | None = None


_encode = msgspec.json.Encoder().encode
_stored = msgspec.json.Decoder(_Item).decode


async def check(context: Context, caller: Caller) -> None:
    """Raises Unavailable if the quota is used up. Counts jobs only if there is a quota."""
    for user in ("", caller.key):
        quota = await _quota(context, caller, user)
        if quota < UNLIMITED and await _used(context, caller, user) >= quota:
            whose = f"The user {user}" if user else "The project"
            raise Unavailable(f"{whose} has reached its quota of {quota} training jobs.", code=OVER_QUOTA)


async def show(context: Context, request: Request, caller: Caller) -> Response:
    user = fields.query_text(request.query_params, "user_id")
    resource = fields.choice(request.query_params, "resource", JOBS, RESOURCES)
    found = await context.assets.by_name(caller, KIND, user, resource)
    item = (
        msgspec.to_builtins(_stored(found.document)) if found else {"resource": resource, "quota": UNLIMITED}
    )
    used = await _used(context, caller, user) if resource == JOBS else 0
    return reply.json({"quotas": [item | {"used": used}]})


async def change(context: Context, request: Request, caller: Caller) -> Response:
    body = await fields.read(request, _QuotaBody)
    user = fields.text("user_id", body.user_id, 64)
    for item in body.quotas:
        _check(item)
    for item in body.quotas:
        await _put(context, caller, user, msgspec.structs.replace(item, used=None))
    used = await _used(context, caller, user)
    items = [
        msgspec.to_builtins(item) | {"used": used if item.resource == JOBS else 0} for item in body.quotas
    ]
    return reply.json({"user_id": user, "quotas": items})


ROUTES: Routes = [("GET", "/training-quotas", show), ("PUT", "/training-quotas", change)]


async def _quota(context: Context, caller: Caller, user: str) -> int:
    found = await context.assets.by_name(caller, KIND, user, JOBS)
    return _stored(found.document).quota if found else UNLIMITED


async def _used(context: Context, caller: Caller, user: str) -> int:
    """Does not count the jobs of trials: a search counts once."""
    query: Query = All(Compare("dialect", "=", DIALECT), Not(Compare("scope", "like", f"{TRIAL_SCOPE}:*")))
    return await context.jobs.count(caller, All(query, Label("user_id", "=", user)) if user else query)


def _check(item: _Item) -> None:
    if item.resource not in RESOURCES:
        raise Invalid(
            f"quotas[].resource must be {' or '.join(RESOURCES)}, not {item.resource!r}.",
            field="quotas",
            code=INVALID,
        )
    least = 0 if item.resource in RESOURCES[2:] else 1
    most = UNLIMITED if item.resource in RESOURCES[:2] else 1 - RESOURCES[2:].index(item.resource)
    if not least <= item.quota <= most:
        raise Invalid(
            f"quotas[].quota of {item.resource} must be from {least} to {most}, not {item.quota}.",
            field="quotas",
            code=INVALID,
        )
    fields.text("quotas[].extra_info", item.extra_info, 1024)


async def _put(context: Context, caller: Caller, user: str, item: _Item) -> None:
    now = context.clock()
    name = f"{user}/{item.resource}"
    asset = Asset(caller.project, KIND, name, user, item.resource, now, now, _encode(item))
    try:
        await context.assets.update(caller, asset)
    except NotFound:
        try:
            await context.assets.create(caller, asset)
        except AlreadyExists:  # another request created it meanwhile
            await context.assets.update(caller, asset)
