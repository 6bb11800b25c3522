"""What running replicas use, by their last samples: one sum for each engine, so that nothing looks at all jobs."""

from collections import defaultdict

from turnout.control.live_job import LiveJob
from turnout.control.node_pool import NOTHING
from turnout.job import ReplicaName, Sample
from turnout.job.resources import Share


class UsedResources:
    def __init__(self) -> None:
        self._by_engine = defaultdict[str, Share](lambda: NOTHING)
        self._of_jobs: dict[int, dict[ReplicaName, Share]] = {}
        """GPUs in thousandths: see `on`."""

    def sample(self, live: LiveJob, sample: Sample) -> None:
        allocation = live.placement.get(sample.replica)
        if allocation is None:
            return
        share = allocation.share
        used = Share(
            _part(sample.cpu, share.millicores),
            _part(sample.memory, share.memory),
            _part(sample.gpu, share.gpus * 1000),
        )
        mine = self._of_jobs.setdefault(live.job.id, {})
        self._by_engine[live.engine] += used - mine.get(sample.replica, NOTHING)
        mine[sample.replica] = used

    def drop(self, live: LiveJob) -> None:
        """Call it when an attempt has ended."""
        for used in self._of_jobs.pop(live.job.id, {}).values():
            self._by_engine[live.engine] -= used

    def on(self, engine: str) -> tuple[float, int, float]:
        """Cores, bytes of memory, GPUs."""
        used = self._by_engine.get(engine, NOTHING)
        return used.millicores / 1000, used.memory, used.gpus / 1000


def _part(percent: float | None, whole: int) -> int:
    return int((percent or 0) / 100 * whole)
