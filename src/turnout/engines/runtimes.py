"""The runtimes of a machine, as operators see them."""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol


class RuntimeView(NamedTuple):
    name: str
    state: str
    """`ready`, `making`, `not made` or `failed`."""
    default: bool
    """Whether jobs run in it whose own runtime has no meaning here."""
    python: str
    path: str
    """Its interpreter."""
    packages: list[str]
    """What it asks for; empty: it is an interpreter that the settings name."""
    installed: list[str]
    size: int
    made: int | None
    used: int | None
    why: str
    """Why it could not be made."""


class RuntimeCheck(NamedTuple):
    what: str
    ok: bool
    detail: str


class RuntimeOperations(Protocol):
    """List, make and check the runtimes of this machine."""

    async def all(self) -> list[RuntimeView]:
        """Those of the settings, and the presets that jobs have asked for since the start."""
        ...

    def make(self, name: str) -> AsyncIterator[str]:
        """Makes its environment, also after a failure; yields how far it is. Raises TurnoutError.

        It goes on if the caller stops the iteration.
        """
        ...

    def check(self, name: str) -> AsyncIterator[RuntimeCheck]:
        """What works and what is missing. Raises TurnoutError."""
        ...
