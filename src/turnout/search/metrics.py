"""What a program says of itself, in its log or in a file, and the measurements that it comes to."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from turnout.job import Measurement, Search
from turnout.job.search import Metric

MARK = "TURNOUT_METRIC "
HYPERTUNE = "/var/hypertune/output.metrics"
"""Where cloudml-hypertune writes, a line of JSON for each report; it keeps the last hundred."""

_LONGEST_LINE = 10_000
_LARGEST_STEP = (1 << 63) - 1


class Said(NamedTuple):
    at: int
    metrics: dict[str, float]
    step: int | None = None
    """None: the program does not count."""


class Patterns:
    """The expressions of a search's metrics: in a line the last match counts, group 1 of it if there is one."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._patterns = [(one.name, re.compile(one.regex)) for one in metrics if one.regex]

    def find(self, lines: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
        found: list[tuple[int, dict[str, str]]] = []
        for number, line in enumerate(lines):
            values = {name: text for name, pattern in self._patterns if (text := _last(pattern, line))}
            if values:
                found.append((number, values))
        return found


def read_line(at: int, line: str) -> Said | None:
    """`TURNOUT_METRIC accuracy=0.93 loss=0.2 step=7`, with anything before it; the step may be left out."""
    _, mark, told = line.partition(MARK)
    if not mark:
        return None
    metrics: dict[str, float] = {}
    step = None
    for pair in told.split():
        name, equals, text = pair.partition("=")
        if name == "step":
            step = _step(text)
        elif equals and name and (value := number(text)) is not None:
            metrics[name] = value
    return Said(at, metrics, step) if metrics else None


def read_hypertune(data: bytes) -> Iterator[Said]:
    """Lines that are not of its kind are passed over."""
    for line in data.splitlines():
        try:
            told = json.loads(line)
            at = int(float(told.pop("timestamp", 0)) * 1e9)
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
        step = _step(str(told.pop("global_step", "")))
        told.pop("trial", None)
        values = {str(name): number(str(text)) for name, text in told.items()}
        metrics = {name: value for name, value in values.items() if value is not None}
        if metrics and 0 <= at <= _LARGEST_STEP:
            yield Said(at, metrics, step)


def shortened(line: str) -> str:
    return line[:_LONGEST_LINE]


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class Gathered:
    """The measurements of one trial. Who does not count steps begins the next with a metric that it has told before."""

    def __init__(self, search: Search, job: int, number: int, known: Iterable[Measurement] = ()) -> None:
        self._search = search
        self._job, self._number = job, number
        self._steps: dict[int, Measurement] = {one.step: one for one in known}
        self._last: dict[str, float] = {}
        for one in self._steps.values():
            self._last |= one.metrics
        self._current = max(self._steps, default=0)
        self._fresh: dict[int, None] = {}

    def add(self, said: Said) -> None:
        step = self._step(said)
        before = self._steps.get(step)
        metrics = (before.metrics if before else {}) | said.metrics
        if before and before.metrics == metrics:
            return
        self._steps[step] = Measurement(self._job, self._number, step, said.at, metrics)
        self._current = max(self._current, step)
        self._fresh[step] = None
        self._last |= said.metrics

    def take(self) -> list[Measurement]:
        """What is new or has changed since the last time."""
        fresh, self._fresh = self._fresh, {}
        return [self._steps[step] for step in fresh]

    def outcome(self) -> tuple[float | None, dict[str, float]]:
        """The value that counts, which may be none or NaN, and all metrics that belong to it."""
        metric = self._search.metric
        if self._search.measurement == "best":
            good = [
                one for one in self._steps.values() if math.isfinite(one.metrics.get(metric.name, math.nan))
            ]
            if good:
                best = (max if metric.goal == "max" else min)(good, key=lambda one: one.metrics[metric.name])
                return best.metrics[metric.name], best.metrics
        return self._last.get(metric.name), self._last

    def _step(self, said: Said) -> int:
        if said.step is not None:
            return said.step
        current = self._steps.get(self._current)
        if current and not said.metrics.keys() & current.metrics.keys():
            return self._current
        return self._current + 1


def _last(pattern: re.Pattern[str], line: str) -> str:
    text = ""
    for match in pattern.finditer(line):
        text = (match.group(1) if pattern.groups else match.group()) or text
    return text


def _step(text: str) -> int | None:
    try:
        step = int(text)
    except ValueError:
        return None
    return step if 0 <= step <= _LARGEST_STEP else None
