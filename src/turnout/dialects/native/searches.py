"""Searches of all APIs: `/turnout/v1/searches`, and of one its space, its trials in pages, and the importance."""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout import pools
from turnout.access.revoked import unless_revoked
from turnout.dialects import Context
from turnout.dialects.native import job_list, reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.lookup import find_job
from turnout.dialects.native.wire import JobRow, TrialDocument, trial_document
from turnout.errors import Invalid, NotFound, TurnoutError
from turnout.job import Job, Label, Search, Trial, TrialState
from turnout.job.algorithms import param_value
from turnout.job.search import Algorithm, Metric, Parameter, Stopping
from turnout.service import Caller, JobView, while_connected
from turnout.service.jobs import SEARCH_LABEL

MOST_LISTED = 100
MOST_TRIALS = 1000
_ON_LOOP = 100
"""Up to so many trials are rendered on the event loop."""


class SearchRow(JobRow, kw_only=True):
    metric: str
    """The objective; empty if the search cannot be decrypted."""
    goal: str
    """max or min."""
    algorithms: list[str]
    parameters: int
    max_trials: int
    """At most; 0 if the search cannot be decrypted."""
    trials: dict[str, int]
    """How many trials are in each state."""


class SearchesDocument(msgspec.Struct):
    searches: list[SearchRow]
    next: str
    """The `cursor` of the next page; empty on the last page."""


class SearchDocument(SearchRow, kw_only=True):
    space: list[Parameter]
    metrics: list[Metric]
    """The first is the objective."""
    suggesters: list[Algorithm]
    """The algorithms with their settings. They run one after the other."""
    parallel: int
    max_failed: int
    stopping: Stopping | None


class TrialsDocument(msgspec.Struct):
    trials: list[TrialDocument]
    next: str
    """The `cursor` of the next page; empty on the last page."""


class ImportanceDocument(msgspec.Struct):
    """The share of the variance of the objective that a parameter explains by itself."""

    name: str
    mean: float
    std: float


def search_routes(context: Context, guarded: Guard) -> list[Route]:
    calls = _SearchHandlers(context)
    return [
        Route("/turnout/v1/searches", guarded(calls.list)),
        Route("/turnout/v1/searches/{job:path}/trials", guarded(calls.trials)),
        Route("/turnout/v1/searches/{job:path}/importance", guarded(calls.importance)),
        Route("/turnout/v1/searches/{job:path}", guarded(calls.search)),
    ]


class _SearchHandlers:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def list(self, request: Request, caller: Caller) -> Response:
        """Filter, order and cursor are those of the list of jobs."""
        jobs, following = await job_list.page(
            self._context, request, caller, Label(SEARCH_LABEL, "!=", None), MOST_LISTED
        )
        rows = await job_list.job_rows(self._context, jobs)
        counts = await self._context.searches.counts([job.id for job in jobs])
        found = [
            SearchRow(**_row(row, await self._definition(job), counted))
            for job, row, counted in zip(jobs, rows, counts, strict=True)
        ]
        return reply.json(SearchesDocument(found, following))

    async def search(self, request: Request, caller: Caller) -> Response:
        view = await self._find(request, caller)
        [row] = await job_list.job_rows(self._context, [view.job])
        [counted] = await self._context.searches.counts([view.job.id])
        search = await self._definition(view.job) or Search((), (), ())
        return reply.json(
            SearchDocument(
                **_row(row, search, counted),
                space=list(search.parameters),
                metrics=list(search.metrics),
                suggesters=list(search.algorithms),
                parallel=search.parallel,
                max_failed=search.max_failed,
                stopping=search.stopping,
            )
        )

    async def trials(self, request: Request, caller: Caller) -> Response:
        """In the order of their numbers. The cursor is the number of the first trial of the page."""
        view = await self._find(request, caller)
        first, limit = _number(request, "cursor", 1), min(_number(request, "limit", MOST_TRIALS), MOST_TRIALS)
        found = await self._context.searches.trials_page(view, first - 1, limit + 1)
        following = str(found[limit].number + 1) if len(found) > limit else ""

        def render(trials: list[Trial]) -> Response:
            return reply.json(TrialsDocument([trial_document(trial) for trial in trials], following))

        if len(found) <= _ON_LOOP:
            return render(found[:limit])
        return await pools.logs.run(view.job.project, render, found[:limit])

    async def importance(self, request: Request, caller: Caller) -> Response:
        """Empty with too few results. Takes seconds for a search with many."""
        view = await self._find(request, caller)
        computing = unless_revoked(self._context.keys, caller.key, self._context.searches.importance(view))
        found = await while_connected(request.receive, computing)
        weights = [ImportanceDocument(*one) for one in found if isfinite(one[1])]
        return reply.json({"importance": weights})

    async def _find(self, request: Request, caller: Caller) -> JobView:
        _, view, _ = await find_job(self._context.jobs, request, caller)
        if SEARCH_LABEL not in (await self._context.jobs.labels([view.job.id]))[view.job.id]:
            raise NotFound(f"the job {view.job.name!r} is not a search", field="job")
        return view

    async def _definition(self, job: Job) -> Search | None:
        try:
            return (await self._context.jobs.spec(JobView(job, (), b""))).search
        except TurnoutError:  # its key is missing, or it is damaged
            return None


def _row(row: JobRow, search: Search | None, counted: Mapping[TrialState, int]) -> dict[str, Any]:
    objective = search.metrics[0] if search and search.metrics else Metric("", "max")
    return msgspec.structs.asdict(row) | {
        "metric": objective.name,
        "goal": objective.goal,
        "algorithms": [one.name for one in search.algorithms] if search else [],
        "parameters": len(search.parameters) if search else 0,
        "max_trials": _most_trials(search) if search else 0,
        "trials": {str(state): count for state, count in counted.items()},
    }


def _most_trials(search: Search) -> int:
    """A grid may have fewer points: they are not counted here, because there may be very many."""
    return search.max_trials or sum(int(param_value(one, "num_samples")) for one in search.algorithms)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name) or str(default)
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise Invalid(f"{name}: must be a whole number of at least 1, not {text!r}", field=name)
    return int(text)
