"""Finds the algorithm that a request names."""

from turnout.dialects.modelarts.account import workspaces
from turnout.dialects.modelarts.context import Context
from turnout.dialects.modelarts.errors import NO_SUCH_ALGORITHM
from turnout.errors import NotFound
from turnout.job import Asset
from turnout.service import Caller

KIND = "algorithm"


async def by_id(context: Context, caller: Caller, algorithm_id: str) -> Asset:
    """Raises NotFound, and Denied if the algorithm's workspace is closed to the caller."""
    try:
        found = await context.assets.get(caller, KIND, algorithm_id)
    except NotFound:
        raise missing() from None
    await workspaces.check_access(context, caller, found.scope)
    return found


def missing() -> NotFound:
    """With the message of ModelArts' documentation."""
    return NotFound("algorithm not found.", field="algorithm.id", code=NO_SUCH_ALGORITHM)
