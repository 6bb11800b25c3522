"""What a task used, minute by minute, in percent: six series of equal length."""

from collections.abc import Callable, Sequence

from turnout.job import Sample

NOTHING = -1
"""Nothing was measured in that minute, or there is no such device."""

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
    """One value for each minute from `started` to `until`, and at least one. `samples` are in the order of time."""
    minutes = _by_minute(samples, started)
    length = max(1, (until - started) // _MINUTE, max(minutes, default=-1) + 1)
    metrics = [
        {"metric": name, "value": [_average(minutes.get(minute, ()), measure) for minute in range(length)]}
        for name, measure in _SERIES.items()
    ]
    return {"metrics": metrics}


def _by_minute(samples: Sequence[Sample], started: int) -> dict[int, list[Sample]]:
    """A sample belongs to the minute that the middle of its time lies in: it is an average since the one before."""
    minutes: dict[int, list[Sample]] = {}
    before = started
    for sample in samples:
        middle = (max(before, sample.at - _MINUTE) + sample.at) // 2
        minutes.setdefault(max(0, (middle - started) // _MINUTE), []).append(sample)
        before = sample.at
    return minutes


def _average(samples: Sequence[Sample], measure: Measure) -> float:
    values = [value for sample in samples if (value := measure(sample)) is not None]
    return round(sum(values) / len(values), 2) if values else NOTHING
