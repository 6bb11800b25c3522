"""Makes the models of training pipelines whose jobs have succeeded, each exactly once."""

import asyncio
import logging
from typing import Any

import msgspec

from turnout import chaos
from turnout.dialects import Context
from turnout.dialects.vertex import render, resource_ids
from turnout.dialects.vertex.errors import CODES, INVALID_ARGUMENT, error_response
from turnout.dialects.vertex.models import versions
from turnout.dialects.vertex.models.names import ModelName
from turnout.dialects.vertex.models.versions import NewVersion
from turnout.dialects.vertex.models.wire import Model
from turnout.dialects.vertex.pipelines.render import name as pipeline_name
from turnout.dialects.vertex.pipelines.translate import FAILED, MADE, MODEL, PENDING
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.times import spell_time
from turnout.dialects.vertex.tuning import trials
from turnout.errors import (
    AlreadyExists,
    Denied,
    Invalid,
    NotFound,
    OverQuota,
    TurnoutError,
    WrongState,
)
from turnout.job import All, Compare, Job, Label, Page, State
from turnout.job.state import LIVE
from turnout.service import Caller, JobView

_PAUSES = (1.0, 5.0, 30.0, 60.0)
"""Seconds before each further try, while the bucket cannot be read."""
_MOST = 10_000
_FINAL = (AlreadyExists, Denied, Invalid, NotFound, OverQuota)
"""Errors that another try would meet again."""

log = logging.getLogger(__name__)


class ModelUploads:
    """A pipeline whose model is not made yet has the label MODEL = PENDING, so a new service finds it again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._new = asyncio.Event()

    def look(self) -> None:
        """Call it when a pipeline was created."""
        self._new.set()

    async def run(self) -> None:
        """Ends only when it is cancelled."""
        try:
            while True:
                self._new.clear()
                try:
                    pending = await self._pending()
                except TurnoutError as error:
                    log.warning("training pipelines that wait for their models could not be read: %s", error)
                    await asyncio.sleep(_PAUSES[0])
                    continue
                for job in pending:
                    if job.id not in self._tasks:
                        self._start(job)
                await self._new.wait()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _pending(self) -> list[Job]:
        states = tuple(state.value for state in (*sorted(LIVE), State.SUCCEEDED))
        query = All(Label(MODEL, "=", PENDING), Compare("state", "in", states))
        return await self._context.jobs.list_jobs(None, query, Page(limit=_MOST))

    def _start(self, job: Job) -> None:
        task = asyncio.create_task(self._follow(job), name=f"model of pipeline {job.id}")
        self._tasks[job.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(job.id, None))

    async def _follow(self, job: Job) -> None:
        caller = Caller("turnout", job.project)
        try:
            view = await self._ended(caller, job.id)
            if view.job.state is State.SUCCEEDED:
                await self._conclude(caller, view)
        except NotFound:
            return  # the job was deleted
        except WrongState as error:
            log.warning("the model of training pipeline %s is not made: %s", job.id, error)

    async def _ended(self, caller: Caller, job_id: int) -> JobView:
        with self._context.jobs.watch(job_id) as changed:
            while True:
                changed.clear()
                view = await self._context.jobs.by_id(caller, job_id)
                if not view.job.live:
                    return view
                await changed.wait()

    async def _conclude(self, caller: Caller, view: JobView) -> None:
        """Makes the model, then stores the outcome with the pipeline."""
        chaos.point("pipeline.job_ended")
        number = 0
        while True:
            try:
                name = await self._make(caller, view)
            except _FINAL as error:
                return await self._store(caller, view, FAILED, {"error": _status(error)})
            except TurnoutError as error:
                log.warning("the model of training pipeline %s is not made yet: %s", view.job.id, error)
                await asyncio.sleep(_PAUSES[min(number, len(_PAUSES) - 1)])
                number += 1
                continue
            chaos.point("pipeline.model_made")
            made = {"name": name.model, "versionId": name.version}
            return await self._store(caller, view, MADE, {"modelToUpload": made})

    async def _make(self, caller: Caller, view: JobView) -> ModelName:
        document: dict[str, Any] = msgspec.json.decode(view.document)
        artifacts = await self._artifacts(view)
        if not (await self._context.objects.list(f"{artifacts}/", caller.project, limit=1)).objects:
            raise Invalid(
                f'There are no files under "{artifacts}" to make a model of: the program must write its model to '
                "AIP_MODEL_DIR."
            )
        model = codec.decode(msgspec.json.encode(document["modelToUpload"]), Model, "model").message
        model.artifact_uri = artifacts
        new = NewVersion(
            model,
            render.location_of(view.job),
            _parent(caller, document.get("parentModel", "")),
            document.get("modelId") or str(view.job.id),
            pipeline_name(view.job),
        )
        return await versions.create(self._context, caller, new)

    async def _artifacts(self, view: JobView) -> str:
        """The directory that was AIP_MODEL_DIR; for a search, that of its best trial."""
        document = render.document_of(view)
        spec = document.get("jobSpec") or document["trialJobSpec"]
        base = spec["baseOutputDirectory"]["outputUriPrefix"].rstrip("/")
        search = (await self._context.jobs.spec(view)).search
        if search is None:
            return f"{base}/model"
        found = [one for one in await self._context.searches.trials(view) if one.value is not None]
        if not found:
            raise Invalid("No trial has reported a value, so there is no best trial to make a model of.")
        better = max if search.metric.goal == "max" else min
        return f"{base}/{trials.trial_id(better(found, key=lambda trial: trial.value or 0.0))}/model"

    async def _store(self, caller: Caller, view: JobView, outcome: str, fields: dict[str, Any]) -> None:
        jobs = self._context.jobs
        document: dict[str, Any] = msgspec.json.decode(view.document)
        model = document["modelToUpload"] | fields.pop("modelToUpload", {})
        ended = spell_time(max(resource_ids.now(self._context), view.job.ended or 0))
        document |= fields | {"modelToUpload": model, "endTime": ended}
        labels = (await jobs.labels([view.job.id]))[view.job.id] | {MODEL: outcome}
        await jobs.amend(caller, view.job.id, document=msgspec.json.encode(document), labels=labels)


def _parent(caller: Caller, name: str) -> ModelName | None:
    """The parent model, by a name that was checked when the pipeline was created."""
    match name.partition("@")[0].split("/"):
        case ["projects", _, "locations", location, "models", model]:
            return ModelName(caller.project, location, model)
        case _:
            return None


def _status(error: TurnoutError) -> dict[str, Any]:
    """The error as a google.rpc.Status."""
    status = error_response(error).status
    return {"code": CODES.get(status, CODES[INVALID_ARGUMENT]).number, "message": error.message}
