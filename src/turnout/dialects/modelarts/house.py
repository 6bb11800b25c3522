"""What a handler can reach, and the shape of a handler."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import Response

from turnout.access import Keys
from turnout.config import Settings
from turnout.job import Measurement, Trial
from turnout.service import Assets, Caller, Jobs, JobView, Logs, Objects


class Storage(Protocol):
    def check(self, source: str, read_only: bool = False, project: str = "") -> str:
        """Raises Invalid if no job could ever have it, Denied if the project may not. What its user should know."""
        ...


class Searches(Protocol):
    async def trials(self, view: JobView) -> list[Trial]: ...
    async def trial(self, view: JobView, trial_id: str) -> Trial: ...
    async def measurements(self, view: JobView, number: int) -> list[Measurement]: ...
    async def stop_trial(self, caller: Caller, view: JobView, trial_id: str) -> Trial: ...
    async def importance(self, view: JobView) -> list[tuple[str, float, float]]: ...
    async def picture(self, view: JobView, name: str) -> bytes: ...


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
    searches: "Searches" = None  # pyright: ignore


Handler = Callable[[House, Request, Caller], Awaitable[Response]]
Routes = list[tuple[str, str, Handler]]
"""(method, path below `/v2/{project_id}`, handler); a path that begins with `/v1/` or `/v3/` is whole."""
