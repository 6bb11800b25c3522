"""How many training jobs a project, or one user in it, may have."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import body, reply
from turnout.dialects.modelarts.errors import INVALID, OVER_QUOTA
from turnout.dialects.modelarts.find import DIALECT
from turnout.dialects.modelarts.house import House, Routes
from turnout.dialects.modelarts.trials import SCOPE
from turnout.errors import AlreadyExists, Invalid, NotFound, Unavailable
from turnout.job import All, Asset, Compare, Label, Not, Query
from turnout.service import Caller

KIND = "training-quota"
JOBS = "job-num"
UNLIMITED = 2**31 - 1
RESOURCES = (JOBS, "visual-job-num", "job-retention-enabled", "job-num-quota-notify")
"""Only the first has an effect here."""


class _Item(msgspec.Struct, omit_defaults=True):
    resource: str
    quota: int
    used: int | None = None
    extra_info: str = ""


class _Asked(msgspec.Struct):
    quotas: list[_Item]
    user_id: str | None = None


_keep = msgspec.json.Encoder().encode
_kept = msgspec.json.Decoder(_Item).decode


async def check(house: House, caller: Caller) -> None:
    """Raises Unavailable if the caller may have no more jobs. Nobody counts unless somebody set a quota."""
    for user in ("", caller.key):
        quota = await _quota(house, caller, user)
        if quota < UNLIMITED and await _used(house, caller, user) >= quota:
            whose = f"The user {user}" if user else "The project"
            raise Unavailable(f"{whose} may have {quota} training jobs, and has them.", code=OVER_QUOTA)


async def show(house: House, request: Request, caller: Caller) -> Response:
    user = body.query_text(request, "user_id")
    resource = body.word(request, "resource", JOBS, RESOURCES)
    found = await house.assets.by_name(caller, KIND, user, resource)
    shown = (
        msgspec.to_builtins(_kept(found.document)) if found else {"resource": resource, "quota": UNLIMITED}
    )
    used = await _used(house, caller, user) if resource == JOBS else 0
    return reply.json({"quotas": [shown | {"used": used}]})


async def change(house: House, request: Request, caller: Caller) -> Response:
    asked = await body.read(request, _Asked)
    user = body.text("user_id", asked.user_id, 64)
    for item in asked.quotas:
        _check(item)
    for item in asked.quotas:
        await _put(house, caller, user, msgspec.structs.replace(item, used=None))
    used = await _used(house, caller, user)
    shown = [
        msgspec.to_builtins(item) | {"used": used if item.resource == JOBS else 0} for item in asked.quotas
    ]
    return reply.json({"user_id": user, "quotas": shown})


ROUTES: Routes = [("GET", "/training-quotas", show), ("PUT", "/training-quotas", change)]


async def _quota(house: House, caller: Caller, user: str) -> int:
    found = await house.assets.by_name(caller, KIND, user, JOBS)
    return _kept(found.document).quota if found else UNLIMITED


async def _used(house: House, caller: Caller, user: str) -> int:
    """Without trials: a search counts once."""
    query: Query = All(Compare("dialect", "=", DIALECT), Not(Compare("scope", "like", f"{SCOPE}:*")))
    return await house.jobs.count(caller, All(query, Label("user_id", "=", user)) if user else query)


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
    body.text("quotas[].extra_info", item.extra_info, 1024)


async def _put(house: House, caller: Caller, user: str, item: _Item) -> None:
    now = house.clock()
    name = f"{user}/{item.resource}"
    asset = Asset(caller.project, KIND, name, user, item.resource, now, now, _keep(item))
    try:
        await house.assets.update(caller, asset)
    except NotFound:
        try:
            await house.assets.create(caller, asset)
        except AlreadyExists:  # somebody else made it meanwhile
            await house.assets.update(caller, asset)
