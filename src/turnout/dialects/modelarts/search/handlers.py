"""Hyper-parameter search: algorithms, templates, trials, early stopping, parameter importance."""

from collections.abc import AsyncIterator, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import fields, reply
from turnout.dialects.modelarts.context import Context, Routes
from turnout.dialects.modelarts.errors import INVALID, NO_LOG_PATH, UNSUPPORTED
from turnout.dialects.modelarts.jobs import lookup
from turnout.dialects.modelarts.search import config_file, definition, trial_tables
from turnout.errors import NotFound, Unsupported, WrongState
from turnout.job import Compare, Page, Search, Trial
from turnout.service import Caller, JobView

DEFAULT_LIMIT = 50
MAX_LIMIT = 100
HPO = "hpo"
DESCRIPTIONS = {
    "bayes_opt_search": "Hyper-parameter search with a Gaussian process.",
    "tpe_search": "Hyper-parameter search with a tree-structured Parzen estimator.",
    "anneal_search": "Hyper-parameter search by simulated annealing.",
}


async def list_algorithms(context: Context, request: Request, caller: Caller) -> Response:
    found = [
        {
            "name": name,
            "params": [
                {
                    "key": key,
                    "value": str(setting.default),
                    "type": definition.TYPES[type(setting.default)],
                }
                for key, setting in settings.items()
            ],
            "description": DESCRIPTIONS[name],
        }
        for name, settings in definition.ALGORITHMS.items()
    ]
    return reply.json({"search_algo_count": len(found), "search_algo_list": found})


async def list_templates(context: Context, request: Request, caller: Caller) -> Response:
    """Templates for hyper-parameter search. Other kinds of search are not supported."""
    kinds = {
        "algorithm_type_en": HPO,
        "algorithm_type_zh": "超参搜索",
        "algorithm_names": config_file.TEMPLATES,
    }
    return reply.json({"yaml_templates": [kinds]})


async def show_template(context: Context, request: Request, caller: Caller) -> Response:
    kind, name = request.path_params["algorithm_type"], request.path_params["algorithm_name"]
    content = config_file.template(name) if kind == HPO else None
    if content is None:
        known = ", ".join(config_file.TEMPLATES)
        raise Unsupported(
            f"There is no template {name!r} of the type {kind!r}; the templates of {HPO} are {known}.",
            field="algorithm_name",
            code=UNSUPPORTED,
        )
    return reply.json({"file_name": f"{name}.yaml", "content": content})


async def list_trials(context: Context, request: Request, caller: Caller) -> Response:
    limit = fields.number(request.query_params, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
    offset = fields.number(request.query_params, "offset", 0, 0, 1 << 30)
    view, search = await _search(context, request, caller)
    found = await context.searches.trials(view)
    page = sorted(found, key=lambda trial: trial.number)[offset * limit : (offset + 1) * limit]
    reports = await _reports(context, caller, view, page)
    return reply.json(
        {
            "total": len(found),
            "count": len(page),
            "limit": limit,
            "offset": offset,
            "group_by": "",
            "items": trial_tables.render_trials(reports, search, context.clock()),
        }
    )


async def show_trial(context: Context, request: Request, caller: Caller) -> Response:
    view, search = await _search(context, request, caller)
    (report,) = await _reports(
        context, caller, view, [await find_trial(context, view, request.path_params["trial_id"])]
    )
    return reply.json(trial_tables.render_trial(report, search, context.clock()))


async def stop_trial(context: Context, request: Request, caller: Caller) -> Response:
    view, _ = await _search(context, request, caller)
    found = await find_trial(context, view, request.path_params["trial_id"])
    await context.searches.stop_trial(caller, view, found.id)
    return reply.json({"earlystop_trial": found.id})


async def show_analysis(context: Context, request: Request, caller: Caller) -> Response:
    view, _ = await _search(context, request, caller)
    return reply.json(trial_tables.render_importance(await context.searches.importance(view)))


async def show_picture(context: Context, request: Request, caller: Caller) -> Response:
    """Draws the picture from the trials so far, and writes it to the job's log path or output."""
    view, search = await _search(context, request, caller)
    name = request.path_params["parameter_name"]
    if all(parameter.name != name for parameter in search.parameters):
        known = ", ".join(parameter.name for parameter in search.parameters)
        raise NotFound(
            f"parameter_name {name!r} is not a parameter of the search; use one of {known}.",
            field="parameter_name",
            code=INVALID,
        )
    path = trial_tables.picture_path(msgspec.json.decode(view.document), name)
    if not path:
        raise WrongState(
            "The picture cannot be written: the job has neither spec.log_export_path.obs_url nor an output.",
            code=NO_LOG_PATH,
        )
    picture = await context.searches.picture(view, name)
    url = f"obs:/{path}" if path.startswith("/") else path
    await context.objects.write(url, caller.project, _single_chunk(picture), "image/png")
    return reply.json({"file_path": path})


_JOB = "/training-jobs/{training_job_id}"
_TEMPLATES = "/training-jobs/autosearch/yaml-templates"
ROUTES: Routes = [
    ("GET", "/search-algorithms", list_algorithms),
    ("GET", _TEMPLATES, list_templates),
    ("GET", _TEMPLATES + "/{algorithm_type}/{algorithm_name}", show_template),
    ("GET", _JOB + "/autosearch-trials", list_trials),
    ("GET", _JOB + "/autosearch-trials/{trial_id}", show_trial),
    ("POST", _JOB + "/autosearch-trial-earlystop/{trial_id}", stop_trial),
    ("GET", _JOB + "/autosearch-parameter-analysis", show_analysis),
    ("GET", _JOB + "/autosearch-parameter-analysis/{parameter_name}", show_picture),
]


async def find_trial(context: Context, view: JobView, trial_id: str) -> Trial:
    try:
        return await context.searches.trial(view, trial_id)
    except NotFound:
        raise NotFound(
            f"trial_id {trial_id!r} is not a trial of this job.", field="trial_id", code=INVALID
        ) from None


async def _search(context: Context, request: Request, caller: Caller) -> tuple[JobView, Search]:
    view = await lookup.job(context, request, caller)
    search = (await context.jobs.spec(view)).search
    if search is None:
        raise Unsupported(
            "The training job is not a hyper-parameter search, so it has no trials.", code=UNSUPPORTED
        )
    return view, search


async def _reports(
    context: Context, caller: Caller, view: JobView, page: Sequence[Trial]
) -> list[trial_tables.TrialReport]:
    if not page:
        return []
    children = await context.jobs.find(
        caller, Compare("id", "in", tuple(trial.child for trial in page)), Page(limit=len(page))
    )
    pids = {child.job.id: next((replica.pid for replica in child.replicas), None) for child in children}
    return [
        trial_tables.TrialReport(
            trial, await context.searches.measurements(view, trial.number), pids.get(trial.child)
        )
        for trial in page
    ]


async def _single_chunk(content: bytes) -> AsyncIterator[bytes]:
    yield content
