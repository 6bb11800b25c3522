"""What an algorithm is told of the trials that it has asked for."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from turnout.job.search import Point


class Seen(msgspec.Struct, frozen=True):
    number: int
    point: Point
    value: float | None = None
    """None: it has none yet, or it is done and failed."""
    done: bool = False


class Suggester(Protocol):
    """One algorithm on one space."""

    def suggest(self, number: int, seen: Sequence[Seen], attempt: int) -> Point:
        """The point of trial `number`, given the trials 0 to `number` - 1 in that order.

        The same arguments give the same point, in this process or in another. A higher `attempt` is made when what
        came before it must be left out, and must lead to other points sooner or later.
        """
        ...


def values(seen: Sequence[Seen]) -> list[float]:
    return [trial.value for trial in seen if trial.value is not None]
