"""A thread that tells the service what happens: starts, output, samples, ends, in this order."""

from __future__ import annotations

import collections
import json
import os
import threading
import time
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional

from .connection import Gateway
from .errors import Refused, RunnerError
from .output import Output, describe
from .usage import Sample, Usage

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_FULL = 256 << 10
"""With so many bytes in a batch there is no pause before the next."""
_MEASURE_SECONDS, _METRICS_SECONDS = 10.0, 2.0
_TELL_SECONDS = 60.0
"""Without samples, how often the service learns that the program is idle."""
_MOST_METRICS = 64 << 10


class Report(NamedTuple):
    name: str
    body: Dict[str, Any]
    done: Callable[[], None]


class MetricsFile:
    """A file of the program that the service reads. `name` is how the service calls it."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self._path = path
        self._seen = (0, 0, 0)

    def read_new(self) -> Optional[str]:
        """Its text, if it has changed; of a large file the newest lines."""
        try:
            with open(self._path, "rb") as file:
                found = os.fstat(file.fileno())
                state = (found.st_size, found.st_mtime_ns, found.st_ino)
                if state == self._seen:
                    return None
                file.seek(max(found.st_size - _MOST_METRICS, 0))
                data = file.read(_MOST_METRICS)
        except OSError:
            return None
        self._seen = state
        if found.st_size > _MOST_METRICS:
            data = data.partition(b"\n")[2]
        return data.decode(errors="replace")


class Reporter(threading.Thread):
    """`failed` gets the RunnerError that ends it."""

    def __init__(
        self, gateway: Gateway, output: Output, sample_seconds: float, failed: Callable[[RunnerError], None]
    ) -> None:
        super().__init__(name="reporter", daemon=True)
        self._gateway = gateway
        self._output = output
        self._sample_seconds = sample_seconds
        self._failed = failed
        self._reports: Deque[Report] = collections.deque()
        self._usage: Optional[Usage] = None
        self._metrics: Optional[MetricsFile] = None
        self._idle: Optional[float] = None
        self._samples: List[Sample] = []
        self._files: Dict[str, str] = {}
        self._measure_at = self._sample_at = self._tell_at = float("inf")
        self._rest_until = 0.0

    def watch(self, usage: Usage, metrics: Optional[MetricsFile]) -> None:
        """The program runs: from now on measure it."""
        now = time.monotonic()
        usage.begin()
        with self._output.changed:
            self._usage, self._metrics = usage, metrics
            self._measure_at = now + self._measure_seconds
            self._sample_at = now + self._sample_seconds if self._sample_seconds else float("inf")
            self._tell_at = now + (self._sample_seconds or _TELL_SECONDS)
            self._output.changed.notify_all()

    def report(self, name: str, body: Dict[str, Any], done: Callable[[], None]) -> None:
        """Sends it after everything that was printed before. `done` is called when the service has it."""
        with self._output.changed:
            self._reports.append(Report(name, body, done))
            if name == "ended":
                self._measure_at = self._sample_at = self._tell_at = float("inf")
                self._usage, self._idle = None, None
            self._output.changed.notify_all()

    def run(self) -> None:
        try:
            while True:
                self._step()
        except RunnerError as error:
            self._failed(error)
        except (OSError, KeyError, TypeError, ValueError) as error:
            self._failed(Refused(f"the output cannot be sent: {error!r}"))

    @property
    def _measure_seconds(self) -> float:
        longest = min(self._sample_seconds or _MEASURE_SECONDS, _MEASURE_SECONDS)
        return min(longest, _METRICS_SECONDS) if self._metrics else longest

    def _step(self) -> None:
        with self._output.changed:
            self._wait()
            report = self._reports[0] if self._reports else None
        now = time.monotonic()
        if now >= self._measure_at:
            self._measure(now)
        if report and report.name != "ended":
            self._send(report)
        elif report:
            # The last metrics may have been written just before the end.
            self._read_metrics()
            while self._output.pending() or self._files or self._samples:
                self._tell()
            self._send(report._replace(body={**report.body, "sizes": self._output.sizes()}))
        elif self._output.pending() or self._files or self._samples or now >= self._tell_at:
            self._rest(self._tell())

    def _wait(self) -> None:
        """Until there is something to do."""
        while not self._reports:
            now = time.monotonic()
            due = min(self._measure_at, self._tell_at)
            if self._output.pending():
                due = min(due, self._rest_until)
            if now >= due:
                return
            self._output.changed.wait(None if due == float("inf") else due - now)

    def _measure(self, now: float) -> None:
        usage = self._usage
        if usage is None:
            return
        self._measure_at = now + self._measure_seconds
        self._idle = usage.idle()
        if now >= self._sample_at - 0.1 * self._sample_seconds:
            self._sample_at = now + self._sample_seconds
            self._samples.append(usage.sample())
        self._read_metrics()

    def _read_metrics(self) -> None:
        text = self._metrics.read_new() if self._metrics else None
        if self._metrics and text is not None:
            self._files[self._metrics.name] = text

    def _tell(self) -> int:
        batch = self._output.take()
        header = {**describe(batch), "samples": self._samples, "idle": self._idle, "files": self._files}
        data = b"".join(piece.data for piece in batch.pieces)
        body = json.dumps(header).encode() + b"\n" + data
        begun = time.monotonic()
        answer = self._gateway.send("tell", body, {"Content-Type": "application/octet-stream"})
        self._samples, self._files = [], {}
        if self._tell_at != float("inf"):
            self._tell_at = time.monotonic() + (self._sample_seconds or _TELL_SECONDS)
        self._output.acknowledge(answer["sizes"])
        # A busy service gets larger batches.
        self._rest_until = begun + min(max(6 * (time.monotonic() - begun), _SHORTEST_PAUSE), _LONGEST_PAUSE)
        return len(data)

    def _rest(self, sent: int) -> None:
        if sent >= _FULL:
            self._rest_until = 0.0

    def _send(self, report: Report) -> None:
        self._gateway.call(report.name, report.body)
        with self._output.changed:
            self._reports.popleft()
        report.done()
