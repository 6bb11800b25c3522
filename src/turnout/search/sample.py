"""Chooses the measurements of a trial to keep: an even sample for each metric, with the first, last and best."""

import math
from collections import Counter
from collections.abc import Iterator

from turnout.job.search import Metric

FINENESS = 4
"""Each doubling of the step has 2 ** FINENESS buckets, so a long curve is also precise at its beginning."""
_RESERVE = 4


class StepSample:
    """Holds the numbers of steps, not measurements. Adding the kept steps to a new sample restores it.

    It keeps at most `points` evenly spread steps of each metric, and at most 1,000 more of the first metric. All
    metrics together keep at most 4 times `points` steps.
    """

    def __init__(self, metrics: tuple[Metric, ...], points: int) -> None:
        self._goals = {metric.name: metric.goal for metric in metrics}
        self._first_metric = metrics[0].name
        self._points = points
        self._series: dict[str, _Series] = {}
        self._held: Counter[int] = Counter()

    def add(self, step: int, metrics: dict[str, float]) -> list[int]:
        """Returns the steps to drop, which may include this one."""
        changed: list[tuple[int, int]] = []
        for name, value in metrics.items():
            series = self._series.get(name)
            if series is None:
                goal = self._goals.get(name)
                series = self._series[name] = _Series(step, goal, self._points, name == self._first_metric)
            changed += series.add(step, value)
        dropped = self._count([(step, 1), *changed, (step, -1)])
        while len(self._held) > _RESERVE * self._points + 3 * len(self._series):
            largest = max(self._series.values(), key=lambda series: len(series.even))
            if len(largest.even) < 2:
                break
            dropped += self._count(largest.thin())
        return dropped

    def _count(self, changed: list[tuple[int, int]]) -> list[int]:
        dropped: list[int] = []
        for step, by in changed:
            self._held[step] += by
            if not self._held[step]:
                del self._held[step]
                dropped.append(step)
        return dropped


class _Series:
    """One metric. Each bucket of steps keeps its first step; buckets are widened when there are too many."""

    def __init__(self, first: int, goal: str | None, points: int, is_first_metric: bool) -> None:
        self._goal = goal
        self._points = points
        self.even: dict[int, int] = {}
        self._shift = 0
        self._first = first
        self._early: dict[int, int] | None = {} if is_first_metric else None
        self._last: int | None = None
        self._best: int | None = None
        self._best_value = math.nan

    def add(self, step: int, value: float) -> Iterator[tuple[int, int]]:
        """Yields (step, +1 or -1) for each change of the number of reasons to keep that step."""
        if step != self._last:
            yield step, 1
            if self._last is not None:
                yield self._last, -1
            self._last = step
        if self._goal and self._is_best(value):
            yield from self._hold_best(step, value)
        distance = step - self._first
        if self._early is not None and (early := bucket(distance, FINENESS)) not in self._early:
            self._early[early] = step
            yield step, 1
        if (even := distance >> self._shift) not in self.even:
            self.even[even] = step
            yield step, 1
            while len(self.even) > self._points:
                yield from self.thin()

    def thin(self) -> list[tuple[int, int]]:
        """Merge every two neighbouring buckets into one."""
        before, self.even = self.even, {}
        self._shift += 1
        return [
            (step, -1)
            for step in before.values()
            if self.even.setdefault((step - self._first) >> self._shift, step) != step
        ]

    def _is_best(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        return self._best is None or (
            value > self._best_value if self._goal == "max" else value < self._best_value
        )

    def _hold_best(self, step: int, value: float) -> Iterator[tuple[int, int]]:
        if step != self._best:
            yield step, 1
            if self._best is not None:
                yield self._best, -1
        self._best, self._best_value = step, value


def bucket(distance: int, fineness: int) -> int:
    """Small distances have a bucket each; larger buckets are at most 2 ** -fineness of the distance wide."""
    size = abs(distance)
    shift = max(0, size.bit_length() - fineness - 1)
    found = (shift << (fineness + 1)) + (size >> shift)
    return found if distance >= 0 else -found
