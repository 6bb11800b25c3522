"""`/metrics`, in Prometheus' text format. No label has values without a bound, and nothing looks at all jobs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from turnout import __version__
from turnout.service import Jobs, Webhooks
from turnout.web.recorder import RequestTimes

_MOST_PROJECTS = 100
_OTHERS = "*"
"""The project label of all jobs beyond those."""


class MetricSources(NamedTuple):
    jobs: Jobs
    times: RequestTimes
    webhooks: Webhooks
    staged: Callable[[], Mapping[str, int]]
    """Bytes that were copied to and from remote object stores, by direction."""
    started: float


async def text(sources: MetricSources) -> str:
    lines = [*_service(sources), *_jobs(sources.jobs), *_resources(sources.jobs)]
    size = await sources.jobs.store_bytes()
    lines += _gauge("turnout_store_bytes", "The size of the database.", [("", size)])
    staged = [(f'{{direction="{name}"}}', count) for name, count in sources.staged().items()]
    lines += _metric(
        "turnout_staged_bytes_total", "counter", "Bytes copied from and to object stores.", staged
    )
    troubles = sources.webhooks.troubles()
    hooks = [(f'{{webhook="{_escaped(name)}"}}', int(name in troubles)) for name in sources.webhooks.names]
    lines += _gauge("turnout_webhook_failing", "Whether the last message was not accepted.", hooks)
    lines += _head("turnout_request_seconds", "histogram", "Time until a reply begins, by API and status.")
    lines += sources.times.lines("turnout_request_seconds")
    return "\n".join(lines) + "\n"


def _service(sources: MetricSources) -> Iterator[str]:
    jobs = sources.jobs
    yield from _gauge("turnout_info", "The version that runs.", [(f'{{version="{__version__}"}}', 1)])
    yield from _gauge(
        "turnout_start_time_seconds", "When the service started.", [("", round(sources.started, 3))]
    )
    ready = int(jobs.engines_synced())
    yield from _gauge(
        "turnout_engines_ready", "Whether every engine has reported what it runs.", [("", ready)]
    )
    clusters = [
        (f'{{cluster="{_escaped(name)}"}}', int(not why)) for name, why in jobs.cluster_troubles().items()
    ]
    yield from _gauge("turnout_cluster_ready", "Whether the cluster starts jobs.", clusters)


def _jobs(jobs: Jobs) -> Iterator[str]:
    states = [(f'{{state="{state}"}}', count) for state, count in sorted(jobs.counts().items())]
    yield from _gauge("turnout_jobs", "Jobs that have not ended, by state.", states)
    yield from _gauge("turnout_running_jobs", "Running jobs by project and cluster.", _running(jobs))
    ends = [(f'{{reason="{why}"}}', count) for why, count in sorted(jobs.measures.ends.items())]
    help_ = "Jobs that ended since the service started, by reason."
    yield from _metric("turnout_jobs_ended_total", "counter", help_, ends)
    yield from _head("turnout_job_queue_seconds", "histogram", "Time that an attempt waits in the queue.")
    yield from jobs.measures.waits.lines("turnout_job_queue_seconds")
    yield from _head("turnout_job_start_seconds", "histogram", "Time from there until the program runs.")
    yield from jobs.measures.starts.lines("turnout_job_start_seconds")


def _running(jobs: Jobs) -> Iterator[tuple[str, float]]:
    running = jobs.measures.running()
    by_project: dict[str, int] = {}
    for (project, _), count in running.items():
        by_project[project] = by_project.get(project, 0) + count
    shown = set(sorted(by_project, key=lambda project: (-by_project[project], project))[:_MOST_PROJECTS])
    found: dict[tuple[str, str], int] = {}
    for (project, cluster), count in running.items():
        key = project if project in shown else _OTHERS, cluster
        found[key] = found.get(key, 0) + count
    for (project, cluster), count in sorted(found.items()):
        yield f'{{project="{_escaped(project)}",cluster="{_escaped(cluster)}"}}', count


def _resources(jobs: Jobs) -> Iterator[str]:
    names = {"cpus": "CPUs", "memory_bytes": "Memory", "gpus": "GPUs"}
    rows: dict[str, list[tuple[str, float]]] = {name: [] for name in names}
    for engine, one in jobs.measures.capacity().items():
        promised = one.total - one.free
        kinds = {
            "total": (one.total.millicores / 1000, one.total.memory, one.total.gpus),
            "promised": (promised.millicores / 1000, promised.memory, promised.gpus),
            "used": one.used,
        }
        for kind, values in kinds.items():
            for name, value in zip(names, values, strict=True):
                rows[name].append((f'{{engine="{_escaped(engine)}",kind="{kind}"}}', value))
    for name, what in names.items():
        help_ = f"{what} of an engine: in total, promised to jobs, and used by the last samples."
        yield from _gauge(f"turnout_{name}", help_, rows[name])


def _gauge(name: str, help_: str, values: Iterable[tuple[str, float]]) -> Iterator[str]:
    return _metric(name, "gauge", help_, values)


def _metric(name: str, kind: str, help_: str, values: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield from _head(name, kind, help_)
    for labels, value in values:
        yield f"{name}{labels} {value}"


def _head(name: str, kind: str, help_: str) -> Iterator[str]:
    yield f"# HELP {name} {help_}"
    yield f"# TYPE {name} {kind}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
