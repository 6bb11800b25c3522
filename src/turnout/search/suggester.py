"""The protocol of a search algorithm."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from turnout.job.search import Point


class KnownTrial(msgspec.Struct, frozen=True):
    """What an algorithm knows of a trial."""

    number: int
    point: Point
    value: float | None = None
    """None: it has no value yet, or it is done and failed."""
    done: bool = False


class Suggester(Protocol):
    """One algorithm on one space."""

    def suggest(self, number: int, seen: Sequence[KnownTrial], attempt: int) -> Point:
        """The point of trial `number`, given the trials 0 to `number` - 1 in that order.

        The same arguments give the same point in every process. `attempt` is raised when the point has to be skipped,
        and must lead to other points eventually.
        """
        ...


def values(seen: Sequence[KnownTrial]) -> list[float]:
    return [trial.value for trial in seen if trial.value is not None]
