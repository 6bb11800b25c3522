"""Authentication by the bearer token that Google's clients send, and authorization for a project."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from turnout.access import Key, bearer_token, check_bearer, may_use
from turnout.dialects import Context
from turnout.dialects.vertex.resource_names import project_number
from turnout.errors import Denied, Unauthenticated
from turnout.service import Caller

_NUMBER = re.compile("[0-9]+")


class Principal(NamedTuple):
    """The owner of a token."""

    name: str
    key: Key
    project: str = ""
    """The project that the token is limited to; empty: not limited."""


def authenticate(context: Context, headers: Mapping[bytes, bytes]) -> Principal:
    """Raises Unauthenticated."""
    if context.settings.no_auth:
        return Principal("anyone", context.keys.root)
    token = bearer_token(headers.get(b"authorization", b"").decode("latin-1"))
    if not token:
        raise Unauthenticated(
            "Request is missing required authentication credential: send Authorization: Bearer with what "
            "`turnout token` prints, or use a service account's file that `turnout keys create --google` writes."
        )
    bearer = check_bearer(context.keys, token, context.clock() / 1e9)
    return Principal(bearer.key.id, bearer.key, bearer.limited_to)


async def authorize(context: Context, principal: Principal, project_name: str) -> Caller:
    """The caller in the project that an address names by its id or number. Raises Denied."""
    key = principal.key
    own_project = principal.project or key.project
    if project_name == own_project or (
        _NUMBER.fullmatch(project_name) and project_name == project_number(own_project)
    ):
        return Caller(principal.name, own_project, key.root)
    if not key.root or principal.project:
        raise Denied(
            f"Permission denied on resource project {project_name[:100]}: the token is for the project {own_project}.",
            field="project",
        )
    project = (
        await _project_by_number(context, project_name) if _NUMBER.fullmatch(project_name) else project_name
    )
    may_use(key, project)
    return Caller(principal.name, project, root=True)


async def _project_by_number(context: Context, number: str) -> str:
    """The known project with this number; if there is none, the number itself is the id."""
    known = {key.project for key in context.keys.all()} | set(await context.jobs.projects())
    return next((project for project in sorted(known) if project_number(project) == number), number)
