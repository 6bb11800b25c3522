"""GET `/turnout/v1/projects`: each project's quota and weight, and what it uses. Root sees all, a key its own."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects import Context
from turnout.dialects.native import reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.queue import ResourcesDocument, resources
from turnout.projects import EVERY_OTHER, Quota, Quotas
from turnout.service import Caller


class ProjectDocument(msgspec.Struct, kw_only=True):
    name: str
    keys: int
    """Keys of the project, without the root key."""
    running: int
    """Jobs that hold resources."""
    waiting: int
    uses: ResourcesDocument
    """What its running jobs asked for, which the quota counts."""
    quota: Quota
    """A limit that is null does not exist."""


def project_routes(context: Context, guarded: Guard) -> list[Route]:
    async def projects(request: Request, caller: Caller) -> Response:
        quotas = Quotas(context.settings.projects)
        keys = [key.project for key in context.keys.all() if not key.root]
        everything = caller.root and not request.query_params.get("project")
        if everything:
            named = set(context.settings.projects) - {EVERY_OTHER}
            names = {context.keys.root.project, *keys, *named, *await context.jobs.projects()}
        else:
            names = {caller.project}
        used = ((name, context.jobs.usage(name)) for name in sorted(names))
        found = [
            ProjectDocument(
                name=name,
                keys=keys.count(name),
                running=usage.running,
                waiting=usage.waiting,
                uses=resources(usage.share),
                quota=quotas.of(name),
            )
            for name, usage in used
        ]
        return reply.json({"projects": found})

    return [Route("/turnout/v1/projects", guarded(projects))]
