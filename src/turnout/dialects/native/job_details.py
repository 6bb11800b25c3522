"""One job: everything that fits into one reply, and what its replicas used and its trials measured."""

from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout import pools
from turnout.dialects import Context
from turnout.dialects.native import reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.job_filter import user_labels
from turnout.dialects.native.lookup import find_job, find_replica
from turnout.dialects.native.wire import (
    ExplainDocument,
    JobDetails,
    MeasurementDocument,
    SampleDocument,
    attempt_document,
    audit_document,
)
from turnout.errors import TurnoutError
from turnout.job import Sample, Spec
from turnout.service import Caller, JobView

MOST_SAMPLES = 1000
"""Of one replica in a reply; of longer jobs an even selection."""
MOST_REPLICAS = 100
MOST_LINES = 100
"""Of the audit trail."""
_LINKS = ("explain", "logs", "samples", "metrics", "shells", "wait")


async def job_details(context: Context, view: JobView, explained: ExplainDocument) -> JobDetails:
    job = view.job
    labels = await context.jobs.labels([job.id])
    try:
        spec = _shown_spec(await context.jobs.spec(view))
    except TurnoutError:  # its key is missing, or it is damaged
        spec = None
    return JobDetails(
        **msgspec.structs.asdict(explained),
        priority=job.priority,
        owner=job.owner,
        labels=user_labels(labels[job.id]),
        attempts=[attempt_document(past) for past in await context.jobs.past(view)],
        audit=[audit_document(line) for line in await context.audit.of_job(job.id, MOST_LINES)],
        spec=spec,
        document=None if view.locked else msgspec.Raw(view.document),
        links={name: f"/turnout/v1/jobs/{job.id}/{name}?project={quote(job.project)}" for name in _LINKS},
    )


def usage_routes(context: Context, guarded: Guard) -> list[Route]:
    async def samples(request: Request, caller: Caller) -> Response:
        """`replica` chooses one; without it, those of up to 100 replicas."""
        _, view, _ = await find_job(context.jobs, request, caller)
        found: dict[str, list[SampleDocument]] = {}
        chosen = find_replica(view, request)
        names = [chosen] if chosen else [replica.name for replica in view.replicas[:MOST_REPLICAS]]
        for name in names:
            rows = await context.jobs.samples(view, name)
            found[str(name)] = [_sample(row) for row in _even(rows)]
        return reply.json({"samples": found})

    async def metrics(request: Request, caller: Caller) -> Response:
        """What the trials of a search measured, by the trial's number. Other jobs have none."""
        _, view, _ = await find_job(context.jobs, request, caller)
        measured = await context.searches.all_measurements(view)

        def render() -> Response:
            return reply.json(
                {
                    "trials": {
                        str(number + 1): [MeasurementDocument(row.step, row.at, row.metrics) for row in rows]
                        for number, rows in measured.items()
                    }
                }
            )

        return await pools.logs.run(view.job.project, render)

    return [
        Route("/turnout/v1/jobs/{job:path}/samples", guarded(samples)),
        Route("/turnout/v1/jobs/{job:path}/metrics", guarded(metrics)),
    ]


def _shown_spec(spec: Spec) -> dict[str, Any]:
    return msgspec.to_builtins(msgspec.structs.replace(spec, wrapped_key=""))


def _even(rows: list[Sample]) -> list[Sample]:
    """At most MOST_SAMPLES, the first and the last among them."""
    if len(rows) <= MOST_SAMPLES:
        return rows
    last = len(rows) - 1
    return [rows[number * last // (MOST_SAMPLES - 1)] for number in range(MOST_SAMPLES)]


def _sample(row: Sample) -> SampleDocument:
    return SampleDocument(row.at, row.cpu, row.memory, row.gpu, row.gpu_memory)
