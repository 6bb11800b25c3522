"""The request that a handler gets, and the signature of a handler."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.responses import Response

from turnout.dialects import Context
from turnout.service import Caller


class Call(NamedTuple):
    """A request with a parsed address and an authenticated caller."""

    caller: Caller
    """Acts in the project that the address names."""
    version: str
    """`v1`, `v1beta1` or `ui`."""
    location: str
    resource: tuple[str, ...]
    """The segments after the location: `("customJobs", "123")`."""
    query: dict[str, str]
    """The parameters of this call, by their camelCase names."""
    body: bytes
    numbers: bool
    """Whether the response has enum numbers in place of names."""
    origin: str
    """Scheme and host of the caller's URL."""

    @property
    def parent(self) -> str:
        return f"projects/{self.caller.project}/locations/{self.location}"


Handler = Callable[[Context, Call], Awaitable[Response]]
