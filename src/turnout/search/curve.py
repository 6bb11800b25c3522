"""The curve of a trial's first metric, thinned out but sufficient for early stopping."""

import math

from turnout.job import Measurement, Search
from turnout.search.messages import MetricValue
from turnout.search.sample import bucket

FINENESS = 7
_SECOND = 1_000_000_000


class Curve:
    """Contains the exact best and last value, and all values up to step (or second) 256.

    Beyond that, the gap between two values is at most 1 % of the distance from the start.
    """

    def __init__(self, search: Search) -> None:
        self.points: list[MetricValue] = []
        """Values are only appended, so a reader can remember how many it has seen."""
        self.count = 0
        self._name, self._goal = search.metric.name, search.metric.goal
        self._by_time = bool(search.stopping) and search.stopping.by == "seconds"
        self._first: MetricValue | None = None
        self._best: MetricValue | None = None
        self._last: MetricValue | None = None
        self._kept = True
        """Whether `_last` is in `points`."""
        self._buckets: set[int] = set()

    def add(self, measurement: Measurement) -> None:
        value = measurement.metrics.get(self._name, math.nan)
        if not math.isfinite(value):
            return
        new = MetricValue(measurement.step, measurement.at, value)
        self.count += 1
        self._first = first = self._first or new
        distance = (new.at - first.at) // _SECOND if self._by_time else new.step - first.step
        index = bucket(distance, FINENESS)
        is_new = index not in self._buckets
        if is_new:
            # The last value of a bucket is the one that is carried forward to the next bucket.
            if self._last and not self._kept:
                self.points.append(self._last)
            self._buckets.add(index)
            self.points.append(new)
        self._last, self._kept = new, is_new
        if self._best is None or (
            value > self._best.value if self._goal == "max" else value < self._best.value
        ):
            self._best = new

    def best_and_last(self) -> list[MetricValue]:
        return [value for value in (self._best, self._last) if value]
