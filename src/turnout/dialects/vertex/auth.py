"""Who asks, by the bearer token that Google's clients send, and in which project."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from turnout.access import Key, check_bearer, may_use
from turnout.dialects.vertex.house import House
from turnout.dialects.vertex.names import project_number
from turnout.errors import Denied, Unauthenticated
from turnout.service import Caller

_NUMBER = re.compile("[0-9]+")


class Holder(NamedTuple):
    """Of a token."""

    name: str
    key: Key
    project: str = ""
    """The only one that the token is for, if it is for one only."""


def holder(house: House, headers: Mapping[bytes, bytes]) -> Holder:
    """Raises Unauthenticated."""
    if house.settings.no_auth:
        return Holder("anyone", house.keys.root)
    text = headers.get(b"authorization", b"").decode("latin-1").strip()
    scheme, _, token = text.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated(
            "Request is missing required authentication credential: send Authorization: Bearer with what "
            "`turnout token` prints, or use a service account's file that `turnout keys create --google` writes."
        )
    bearer = check_bearer(house.keys, token.strip(), house.clock() / 1e9)
    return Holder(bearer.key.id, bearer.key, bearer.only)


async def caller(house: House, holder: Holder, named: str) -> Caller:
    """The holder in the project that an address names by its id or number. Raises Denied."""
    key = holder.key
    own = holder.project or key.project
    if named == own or (_NUMBER.fullmatch(named) and named == project_number(own)):
        return Caller(holder.name, own, key.root)
    if not key.root or holder.project:
        raise Denied(
            f"Permission denied on resource project {named[:100]}: the token is for the project {own}.",
            field="project",
        )
    project = await _by_number(house, named) if _NUMBER.fullmatch(named) else named
    may_use(key, project)
    return Caller(holder.name, project, root=True)


async def _by_number(house: House, number: str) -> str:
    """The project that has this number, among those that are known; a number that none has is an id."""
    known = {key.project for key in house.keys.all()} | set(await house.jobs.projects())
    return next((project for project in sorted(known) if project_number(project) == number), number)
