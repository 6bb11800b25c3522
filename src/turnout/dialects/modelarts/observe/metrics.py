"""The resource usage of a task in percent: six series with a value for each minute."""

from collections.abc import Callable, Sequence

from turnout.job import Sample

NOT_MEASURED = -1
"""For a minute without samples, and for a device that the task does not have."""

_MINUTE = 60_000_000_000

Document = dict[str, object]
Measure = Callable[[Sample], float | None]

_SERIES: dict[str, Measure] = {
    "cpuUsage": lambda sample: sample.cpu,
    "memUsage": lambda sample: sample.memory,
    "npuUtil": lambda sample: None,
    "npuMemUsage": lambda sample: None,
    "gpuUtil": lambda sample: sample.gpu,
    "gpuMemUsage": lambda sample: sample.gpu_memory,
}


def render(samples: Sequence[Sample], started: int, until: int) -> Document:
    """At least one value, and one for each minute from `started` to `until`. `samples` are in the order of time."""
    minutes = _by_minute(samples, started)
    length = max(1, (until - started) // _MINUTE, max(minutes, default=-1) + 1)
    metrics = [
        {"metric": name, "value": [_average(minutes.get(minute, ()), measure) for minute in range(length)]}
        for name, measure in _SERIES.items()
    ]
    return {"metrics": metrics}


def _by_minute(samples: Sequence[Sample], started: int) -> dict[int, list[Sample]]:
    """A sample is an average since the one before. It counts for the minute in which the middle of that time is."""
    minutes: dict[int, list[Sample]] = {}
    before = started
    for sample in samples:
        middle = (max(before, sample.at - _MINUTE) + sample.at) // 2
        minutes.setdefault(max(0, (middle - started) // _MINUTE), []).append(sample)
        before = sample.at
    return minutes


def _average(samples: Sequence[Sample], measure: Measure) -> float:
    values = [value for sample in samples if (value := measure(sample)) is not None]
    return round(sum(values) / len(values), 2) if values else NOT_MEASURED
