"""Hyperparameter tuning jobs: create, get, list, cancel, delete."""

from typing import Any

from starlette.responses import Response

from turnout.dialects.vertex import (
    answer,
    decode,
    filter,
    jobs,
    mask,
    numbers,
    operations,
    paging,
    reply,
    translate,
    trials,
)
from turnout.dialects.vertex.house import Call, House
from turnout.dialects.vertex.mask import Mask
from turnout.dialects.vertex.place import Place
from turnout.dialects.vertex.wire_tuning import HyperparameterTuningJob, Trial
from turnout.errors import NotFound
from turnout.job import All, Compare, Page, TrialState
from turnout.service import JobView

KIND = "HyperparameterTuningJob"


async def create(house: House, call: Call) -> Response:
    place = Place.of(house.settings, call.caller.project, call.location)
    new = jobs.checked(house, call, translate.new_tuning_job(decode.tuning_job(call.body), place))
    house.searches.check(new)
    job = await house.jobs.create(call.caller, new)
    return reply.json(_spelt(call, answer.tuning_job(JobView(job, (), new.document))))


async def get(house: House, call: Call) -> Response:
    view = await find(house, call)
    shown = answer.tuning_job(view)
    tried = await _trials(house, call, view)
    return reply.json(_spelt(call, shown | ({"trials": tried} if tried else {})))


async def list_jobs(house: House, call: Call) -> Response:
    """Newest first, without their trials."""
    text = call.query.get("filter", "")
    listing = paging.Listing(call.caller.project, f"{KIND}/{call.location}", text)
    secret = house.keys.root.secret.encode()
    size = paging.size(call.query.get("pageSize", ""))
    before = paging.read(secret, listing, call.query.get("pageToken", ""))
    wanted = mask.parse(call.query.get("readMask", ""), HyperparameterTuningJob)
    query = All(Compare("scope", "=", translate.tuning_scope(call.location)), filter.parse(text))
    views = await house.jobs.find(call.caller, query, Page(limit=size + 1, before_id=before))
    shown = [_spelt(call, _row(view), wanted) for view in views[:size]]
    listed: dict[str, Any] = {"hyperparameterTuningJobs": shown} if shown else {}
    if len(views) > size:
        listed["nextPageToken"] = paging.make(secret, listing, views[size - 1].job.id)
    return reply.json(listed)


async def cancel(house: House, call: Call) -> Response:
    return await jobs.cancelled(house, call, await find(house, call))


async def delete(house: House, call: Call) -> Response:
    view = await find(house, call)
    jobs.check_ended(view, KIND, answer.tuning_name(view.job))
    await house.jobs.delete(call.caller, view.job.id)
    return reply.json(operations.deleted(house, call))


async def list_optimal(house: House, call: Call) -> Response:
    """The best trial, as Vizier tells it of a study: a job is the study of its own trials."""
    view = await find(house, call)
    search = (await house.jobs.spec(view)).search
    found = [(trial.value, trial) for trial in await house.searches.trials(view) if trial.value is not None]
    if search is None or not found:
        return reply.json({})
    best = (max if search.metric.goal == "max" else min)(found, key=lambda one: one[0])[1]
    shown = trials.shown(view, best, await house.searches.measurements(view, best.number))
    return reply.json({"optimalTrials": [numbers.of(shown, Trial) if call.numbers else shown]})


async def find(house: House, call: Call) -> JobView:
    """The job that the address names. Raises NotFound."""
    name = f"{call.parent}/hyperparameterTuningJobs/{call.resource[1][:100]}"
    view = await jobs.by_id(house, call, KIND, name)
    if view.job.scope != translate.tuning_scope(call.location):
        raise NotFound(f"The {KIND} {name} does not exist.")
    return view


def _row(view: JobView) -> dict[str, Any]:
    return answer.locked(view, answer.tuning_name(view.job)) if view.locked else answer.tuning_job(view)


async def _trials(house: House, call: Call, view: JobView) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    tried = await house.searches.trials(view)
    measured = await house.searches.all_measurements(view)
    for trial in tried:
        links = {}
        if trial.state is TrialState.ACTIVE:
            links = await _links(house, call, trial.child)
        shown.append(trials.shown(view, trial, measured.get(trial.number, ()), links))
    return shown


async def _links(house: House, call: Call, child: int) -> dict[str, str]:
    try:
        job = await house.jobs.by_id(call.caller, child)
    except NotFound:
        return {}
    return dict(await house.web_access(call.caller, job, call.origin))


def _spelt(call: Call, document: dict[str, Any], wanted: Mask | None = None) -> dict[str, Any]:
    shown = mask.apply(wanted, document)
    return numbers.of(shown, HyperparameterTuningJob) if call.numbers else shown
