"""What a handler can reach, and the shape of a handler."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import Response

from turnout.access import Keys
from turnout.config import Settings
from turnout.service import Assets, Caller, Jobs, Logs, Objects, Searches


class Storage(Protocol):
    def check(self, source: str, read_only: bool = False, project: str = "") -> str:
        """Raises Invalid if no job could ever have it, Denied if the project may not. What its user should know."""
        ...


class House(NamedTuple):
    jobs: Jobs
    logs: Logs
    assets: Assets
    keys: Keys
    settings: Settings
    storage: Storage
    clock: Callable[[], int]
    """Nanoseconds since 1970."""
    objects: Objects
    searches: Searches


Handler = Callable[[House, Request, Caller], Awaitable[Response]]
Routes = list[tuple[str, str, Handler]]
"""(method, path below `/v2/{project_id}`, handler); a path that begins with `/v1/` or `/v3/` is whole."""
