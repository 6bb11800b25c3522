"""Ids of resources that are not jobs, and their times of creation: both are unique and only grow."""

from turnout.dialects import Context
from turnout.job.ids import IdMaker

_ids = IdMaker()
_moment = 0


def new_id(context: Context) -> str:
    """19 digits, like the id of a job."""
    return str(_ids.next(context.clock()))


def now(context: Context) -> int:
    """The time, never the same twice, so that a page token can name an asset by its creation."""
    global _moment
    _moment = max(context.clock(), _moment + 1)
    return _moment
