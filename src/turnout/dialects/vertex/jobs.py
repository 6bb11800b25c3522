"""Custom jobs: create, get, list, cancel, delete."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from turnout.dialects.vertex import (
    answer,
    decode,
    filter,
    mask,
    numbers,
    operations,
    paging,
    reply,
    translate,
)
from turnout.dialects.vertex.house import Call, House
from turnout.dialects.vertex.mask import Mask
from turnout.dialects.vertex.names import JobName
from turnout.dialects.vertex.place import Place
from turnout.dialects.vertex.trials import SCOPE
from turnout.dialects.vertex.wire import CustomJob
from turnout.errors import NotFound, WrongState
from turnout.job import All, Compare, NewJob, Page, State
from turnout.service import JobView

KIND = "CustomJob"
TAIL = 2000
"""Bytes of the log at the end of a failed job's error."""
_LARGEST_ID = (1 << 63) - 1


async def create(house: House, call: Call) -> Response:
    place = Place.of(house.settings, call.caller.project, call.location)
    new = checked(house, call, translate.new_job(decode.custom_job(call.body), place))
    job = await house.jobs.create(call.caller, new)
    return reply.json(await _shown(house, call, JobView(job, (), new.document)))


async def get(house: House, call: Call) -> Response:
    return reply.json(await _shown(house, call, await find(house, call)))


async def list_jobs(house: House, call: Call) -> Response:
    """Newest first. Those of one location."""
    text = call.query.get("filter", "")
    listing = paging.Listing(call.caller.project, call.location, text)
    secret = house.keys.root.secret.encode()
    size = paging.size(call.query.get("pageSize", ""))
    before = paging.read(secret, listing, call.query.get("pageToken", ""))
    wanted = mask.parse(call.query.get("readMask", ""), CustomJob)
    query = All(Compare("scope", "=", translate.scope(call.location)), filter.parse(text))
    # One more than the page holds tells whether there is another.
    views = await house.jobs.find(call.caller, query, Page(limit=size + 1, before_id=before))
    shown = [
        _spelt(
            call, answer.locked(view) if view.locked else await _document(house, call, view, wanted), wanted
        )
        for view in views[:size]
    ]
    listed: dict[str, Any] = {"customJobs": shown} if shown else {}
    if len(views) > size:
        listed["nextPageToken"] = paging.make(secret, listing, views[size - 1].job.id)
    return reply.json(listed)


async def cancel(house: House, call: Call) -> Response:
    """Answered at once; a job that has ended stays as it is."""
    return await cancelled(house, call, await find(house, call))


async def delete(house: House, call: Call) -> Response:
    view = await find(house, call)
    check_ended(view, KIND, _name(view))
    await house.jobs.delete(call.caller, view.job.id)
    return reply.json(operations.deleted(house, call))


async def find(house: House, call: Call) -> JobView:
    """The job that the address names, which may be a trial's. Raises NotFound."""
    name = f"{call.parent}/customJobs/{call.resource[1][:100]}"
    view = await by_id(house, call, KIND, name)
    kind = view.job.scope.partition(":")[0]
    if kind not in (translate.DIALECT, SCOPE) or answer.location_of(view.job) != call.location:
        raise NotFound(f"The {KIND} {name} does not exist.")
    return view


async def by_id(house: House, call: Call, kind: str, name: str) -> JobView:
    """The job whose number is in the address, of whatever kind. Raises NotFound."""
    job_id = call.resource[1]
    if not (job_id.isascii() and job_id.isdecimal() and len(job_id) <= 19) or int(job_id) > _LARGEST_ID:
        raise NotFound(f"The {kind} {name} does not exist: the id of one is a number.")
    try:
        return await house.jobs.by_id(call.caller, int(job_id))
    except NotFound:
        raise NotFound(f"The {kind} {name} does not exist.") from None


async def cancelled(house: House, call: Call, view: JobView) -> Response:
    if view.job.live:
        try:
            await house.jobs.stop(call.caller, view.job.id)
        except WrongState:  # it ended meanwhile
            return reply.empty()
    return reply.empty()


def check_ended(view: JobView, kind: str, name: str) -> None:
    """Raises WrongState."""
    if view.job.live:
        state = answer.state(view.job).name
        raise WrongState(
            f"The {kind} {name} is in state {state}: it can be deleted once it has ended. Cancel it first."
        )


def checked(house: House, call: Call, new: NewJob) -> NewJob:
    """With what is known now about the places that the job names."""
    project = call.caller.project
    notes = [house.storage.check(mount.source, mount.read_only, project) for mount in new.spec.mounts]
    return msgspec.structs.replace(new, notes=(*new.notes, *(note for note in notes if note)))


async def _shown(house: House, call: Call, view: JobView) -> dict[str, Any]:
    return _spelt(call, await _document(house, call, view))


async def _document(house: House, call: Call, view: JobView, wanted: Mask | None = None) -> dict[str, Any]:
    """All of it, but for what is costly and not wanted. Raises WrongState if its key is gone."""
    tail = await _tail(house, view) if wanted is None or "error" in wanted else ""
    links: Mapping[str, str] = {}
    if view.job.state is State.RUNNING and (wanted is None or "webAccessUris" in wanted):
        links = await house.web_access(call.caller, view, call.origin)
    return answer.job(view, tail=tail, web_access_uris=links)


def _spelt(call: Call, document: dict[str, Any], wanted: Mask | None = None) -> dict[str, Any]:
    """As the caller wants it."""
    shown = mask.apply(wanted, document)
    return numbers.of(shown, CustomJob) if call.numbers else shown


async def _tail(house: House, view: JobView) -> str:
    """The last lines of the replica whose end was the job's."""
    replica = answer.decider(view.replicas) if view.job.state is State.FAILED else None
    if replica is None:
        return ""
    tail, _ = await house.logs.tail(view, replica.name, TAIL)
    return tail.decode("utf-8", "replace")


def _name(view: JobView) -> str:
    return str(JobName(view.job.project, answer.location_of(view.job), view.job.id))
