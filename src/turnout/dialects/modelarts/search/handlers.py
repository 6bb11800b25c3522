"""The calls about hyper-parameter search: what there is to search with, trials, what mattered, stopping one early."""

from collections.abc import AsyncIterator, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import auto_search, body, find, reply, search_yaml, trials
from turnout.dialects.modelarts.errors import INVALID, NO_LOG_PATH, UNSUPPORTED
from turnout.dialects.modelarts.house import House, Routes
from turnout.errors import NotFound, Unsupported, WrongState
from turnout.job import Compare, Page, Search, Trial
from turnout.service import Caller, JobView

LIMIT = 50
MOST = 100
HPO = "hpo"
DESCRIBED = {
    "bayes_opt_search": "Hyper-parameter search with a Gaussian process.",
    "tpe_search": "Hyper-parameter search with a tree-structured Parzen estimator.",
    "anneal_search": "Hyper-parameter search by simulated annealing.",
}


async def list_algorithms(house: House, request: Request, caller: Caller) -> Response:
    found = [
        {
            "name": name,
            "params": [
                {
                    "key": key,
                    "value": str(setting.default),
                    "type": auto_search.TYPES[type(setting.default)],
                }
                for key, setting in settings.items()
            ],
            "description": DESCRIBED[name],
        }
        for name, settings in auto_search.ALGORITHMS.items()
    ]
    return reply.json({"search_algo_count": len(found), "search_algo_list": found})


async def list_templates(house: House, request: Request, caller: Caller) -> Response:
    """Only of what runs here."""
    kinds = {
        "algorithm_type_en": HPO,
        "algorithm_type_zh": "超参搜索",
        "algorithm_names": search_yaml.TEMPLATES,
    }
    return reply.json({"yaml_templates": [kinds]})


async def show_template(house: House, request: Request, caller: Caller) -> Response:
    kind, name = request.path_params["algorithm_type"], request.path_params["algorithm_name"]
    content = search_yaml.template(name) if kind == HPO else None
    if content is None:
        known = ", ".join(search_yaml.TEMPLATES)
        raise Unsupported(
            f"There is no template {name!r} of the type {kind!r} here; of {HPO} there are {known}.",
            field="algorithm_name",
            code=UNSUPPORTED,
        )
    return reply.json({"file_name": f"{name}.yaml", "content": content})


async def list_trials(house: House, request: Request, caller: Caller) -> Response:
    limit = body.number(request, "limit", LIMIT, 1, MOST)
    offset = body.number(request, "offset", 0, 0, 1 << 30)
    view, search = await _search(house, request, caller)
    all_ = await house.searches.trials(view)
    page = sorted(all_, key=lambda trial: trial.number)[offset * limit : (offset + 1) * limit]
    told = await _told(house, caller, view, page)
    return reply.json(
        {
            "total": len(all_),
            "count": len(page),
            "limit": limit,
            "offset": offset,
            "group_by": "",
            "items": trials.table(told, search, house.clock()),
        }
    )


async def show_trial(house: House, request: Request, caller: Caller) -> Response:
    view, search = await _search(house, request, caller)
    (told,) = await _told(house, caller, view, [await trial(house, view, request.path_params["trial_id"])])
    return reply.json(trials.history(told, search, house.clock()))


async def stop_trial(house: House, request: Request, caller: Caller) -> Response:
    view, _ = await _search(house, request, caller)
    found = await trial(house, view, request.path_params["trial_id"])
    await house.searches.stop_trial(caller, view, found.id)
    return reply.json({"earlystop_trial": found.id})


async def show_analysis(house: House, request: Request, caller: Caller) -> Response:
    view, _ = await _search(house, request, caller)
    return reply.json(trials.analysis(await house.searches.importance(view)))


async def show_picture(house: House, request: Request, caller: Caller) -> Response:
    """Drawn when it is asked for, from the trials that there are by then."""
    view, search = await _search(house, request, caller)
    name = request.path_params["parameter_name"]
    if all(parameter.name != name for parameter in search.parameters):
        known = ", ".join(parameter.name for parameter in search.parameters)
        raise NotFound(
            f"parameter_name {name!r} is not searched; there is {known}.",
            field="parameter_name",
            code=INVALID,
        )
    place = trials.picture_place(msgspec.json.decode(view.document), name)
    if not place:
        raise WrongState(
            "There is no place for pictures: the job has neither spec.log_export_path.obs_url nor an output.",
            code=NO_LOG_PATH,
        )
    picture = await house.searches.picture(view, name)
    url = f"obs:/{place}" if place.startswith("/") else place
    await house.objects.write(url, caller.project, _once(picture), "image/png")
    return reply.json({"file_path": place})


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


async def trial(house: House, view: JobView, trial_id: str) -> Trial:
    try:
        return await house.searches.trial(view, trial_id)
    except NotFound:
        raise NotFound(
            f"trial_id {trial_id!r} is not a trial of this job.", field="trial_id", code=INVALID
        ) from None


async def _search(house: House, request: Request, caller: Caller) -> tuple[JobView, Search]:
    view = await find.job(house, request, caller)
    search = (await house.jobs.spec(view)).search
    if search is None:
        raise Unsupported("The training job searches nothing: it has no trials.", code=UNSUPPORTED)
    return view, search


async def _told(house: House, caller: Caller, view: JobView, page: Sequence[Trial]) -> list[trials.Told]:
    if not page:
        return []
    children = await house.jobs.find(
        caller, Compare("id", "in", tuple(one.child for one in page)), Page(limit=len(page))
    )
    pids = {child.job.id: next((one.pid for one in child.replicas), None) for child in children}
    return [
        trials.Told(one, await house.searches.measurements(view, one.number), pids.get(one.child))
        for one in page
    ]


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
