"""Parses the metrics that a program reports in its log or in a file, and collects them as measurements."""

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from turnout.job import Measurement, Search
from turnout.job.search import Metric
from turnout.search.curve import Curve
from turnout.search.sample import StepSample

MARK = "TURNOUT_METRIC "
HYPERTUNE = "/var/hypertune/output.metrics"
"""The file of cloudml-hypertune: a line of JSON for each report, of which it keeps the last hundred."""

_HYPERTUNE_LINES = 1000
_LONGEST_LINE = 10_000
_LONGEST_NAME = 256
_LARGEST_STEP = (1 << 63) - 1


class MetricReport(NamedTuple):
    at: int
    metrics: dict[str, float]
    step: int | None = None
    """None: the program reports no steps."""


class Patterns:
    """The metrics' regular expressions. The last match in a line counts, or its group 1 if there is one."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._patterns = [(metric.name, re.compile(metric.regex)) for metric in metrics if metric.regex]

    def find(self, lines: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
        found: list[tuple[int, dict[str, str]]] = []
        for number, line in enumerate(lines):
            values = {name: text for name, pattern in self._patterns if (text := _last(pattern, line))}
            if values:
                found.append((number, values))
        return found


def read_line(at: int, line: str) -> MetricReport | None:
    """`TURNOUT_METRIC accuracy=0.93 loss=0.2 step=7`, with any text before it; the step is optional."""
    _, mark, fields = line.partition(MARK)
    if not mark:
        return None
    metrics: dict[str, float] = {}
    step = None
    for pair in fields.split():
        name, equals, text = pair.partition("=")
        if name == "step":
            step = _step(text)
        elif equals and name and (value := number(text)) is not None:
            metrics[name] = value
    return MetricReport(at, metrics, step) if metrics else None


def read_hypertune(data: bytes) -> Iterator[MetricReport]:
    """Reads the last thousand lines and ignores those that are not reports."""
    for line in data.splitlines()[-_HYPERTUNE_LINES:]:
        try:
            fields = json.loads(line)
            at = int(float(fields.pop("timestamp", 0)) * 1e9)
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
        step = _step(str(fields.pop("global_step", "")))
        fields.pop("trial", None)
        values = {str(name): number(str(text)) for name, text in fields.items()}
        metrics = {name: value for name, value in values.items() if value is not None}
        if metrics and 0 <= at <= _LARGEST_STEP:
            yield MetricReport(at, metrics, step)


def shortened(line: str) -> str:
    return line[:_LONGEST_LINE]


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class TrialMetrics:
    """The measurements of one trial. Without a step in a report, a metric that is reported again starts a new step.

    Only a sample is kept, see StepSample; the result is exact.
    """

    def __init__(
        self,
        search: Search,
        job: int,
        number: int,
        known: Iterable[Measurement] = (),
        points: int = 1000,
        names: int = 100,
    ) -> None:
        """`known`: the measurements in the store, in the order in which they were reported."""
        self.curve = Curve(search)
        self._search = search
        self._job, self._number = job, number
        self._most_names = names
        self._sample = StepSample(search.metrics, points)
        self._steps: dict[int, Measurement] = {}
        self._names: dict[str, str] = {}
        self._last: dict[str, float] = {}
        self._best: Measurement | None = None
        self._current = 0
        self._new: dict[int, None] = {}
        self._stored: set[int] = set()
        self._dropped: dict[int, None] = {}
        for measurement in known:
            self._add_names(measurement.metrics)
            self._stored.add(measurement.step)
            self._keep(measurement, measurement.metrics)

    def add(self, report: MetricReport) -> None:
        metrics = self._accepted(report.metrics)
        if not metrics:
            return
        report = report._replace(metrics=metrics)
        step = self._step(report)
        before = self._steps.get(step)
        metrics = (before.metrics if before else {}) | report.metrics
        if before and before.metrics == metrics:
            return
        self._new[step] = None
        if step in self._dropped:
            del self._dropped[step]
            self._stored.add(step)
        self._keep(Measurement(self._job, self._number, step, report.at, metrics), report.metrics)

    def pending(self) -> int:
        """How many items `take_new` or `take_dropped` would return, whichever is more."""
        return max(len(self._new), len(self._dropped))

    def has_dropped(self) -> bool:
        return bool(self._dropped)

    def take_new(self) -> list[Measurement]:
        """The measurements to store: those that are new or changed since the last call."""
        new, self._new = self._new, {}
        self._stored |= new.keys()
        return [self._steps[step] for step in new]

    def take_dropped(self, most: int) -> list[int]:
        """At most `most` of the stored steps that can be deleted; each is returned once."""
        dropped = list(itertools.islice(self._dropped, most))
        for step in dropped:
            del self._dropped[step]
        return dropped

    def outcome(self) -> tuple[float | None, dict[str, float]]:
        """The result, which may be None or NaN, and all metrics of the same measurement."""
        name = self._search.metric.name
        if self._search.measurement == "best" and self._best:
            return self._best.metrics[name], self._best.metrics
        return self._last.get(name), self._last

    def _keep(self, measurement: Measurement, report: dict[str, float]) -> None:
        self._steps[measurement.step] = measurement
        self._current = max(self._current, measurement.step)
        self._last |= report
        if self._search.metric.name in report:
            self.curve.add(measurement)
        self._update_best(measurement)
        for step in self._sample.add(measurement.step, report):
            del self._steps[step]
            self._new.pop(step, None)
            if step in self._stored:
                self._stored.discard(step)
                self._dropped[step] = None

    def _update_best(self, measurement: Measurement) -> None:
        metric = self._search.metric
        value = measurement.metrics.get(metric.name, math.nan)
        if not math.isfinite(value):
            return
        best = self._best.metrics[metric.name] if self._best else value
        same = self._best is None or (measurement.step == self._best.step and value == best)
        if same or (value > best if metric.goal == "max" else value < best):
            self._best = measurement

    def _accepted(self, metrics: dict[str, float]) -> dict[str, float]:
        """Without the metrics whose names exceed the limit."""
        if not metrics.keys() <= self._names.keys():
            self._add_names(metrics)
        return {self._names[name]: value for name, value in metrics.items() if name in self._names}

    def _add_names(self, names: Iterable[str]) -> None:
        declared = {metric.name for metric in self._search.metrics}
        for name in names:
            if name in declared or (len(name) <= _LONGEST_NAME and len(self._names) < self._most_names):
                # All measurements share one string, because names may be long.
                self._names.setdefault(name, name)

    def _step(self, report: MetricReport) -> int:
        if report.step is not None:
            return report.step
        current = self._steps.get(self._current)
        if current and not report.metrics.keys() & current.metrics.keys():
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
