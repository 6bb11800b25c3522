"""What a handler can reach, and what it is asked."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from starlette.responses import Response

from turnout.access import Keys
from turnout.config import Settings
from turnout.service import Caller, Jobs, JobView, Logs, Searches


class Storage(Protocol):
    def check(self, source: str, read_only: bool = False, project: str = "") -> str:
        """What the user should know, if anything. Raises Invalid if no job could ever have it, Denied if the bucket is
        not this project's.
        """
        ...


class WebAccess(Protocol):
    async def __call__(self, caller: Caller, view: JobView, base: str) -> Mapping[str, str]:
        """The links to a job's shells and dashboards by node. `base` is where the caller reached the service."""
        ...


class House(NamedTuple):
    jobs: Jobs
    logs: Logs
    keys: Keys
    settings: Settings
    storage: Storage
    clock: Callable[[], int]
    """Nanoseconds since 1970."""
    web_access: WebAccess
    searches: Searches


class Call(NamedTuple):
    """A request whose address is known, and who sent it."""

    caller: Caller
    """In the project that the address names."""
    version: str
    """`v1`, `v1beta1` or `ui`."""
    location: str
    resource: tuple[str, ...]
    """What the address has behind the location: `("customJobs", "123")`."""
    query: dict[str, str]
    """Without what every call may have; by the names in camelCase."""
    body: bytes
    numbers: bool
    """Enums are wanted as numbers."""
    origin: str
    """Scheme and host as the caller spelt them."""

    @property
    def parent(self) -> str:
        return f"projects/{self.caller.project}/locations/{self.location}"


Handler = Callable[[House, Call], Awaitable[Response]]
