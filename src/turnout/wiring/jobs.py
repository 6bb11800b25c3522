"""What runs jobs: the controller, searches, webhooks and the sweep."""

from typing import NamedTuple

from turnout.child_processes.nobody import nobody
from turnout.control import Controller
from turnout.control.sweep import Aged, Files, Sweeper
from turnout.dialects import MakeTrialJob
from turnout.dialects.vertex.operations import KIND as VERTEX_OPERATION
from turnout.projects import Quotas
from turnout.search import SearchController, SearchWorkerPool
from turnout.service import Jobs, Logs, TrialJobs, Webhooks

from .base import Base, swept_files
from .engines import Engines


class JobParts(NamedTuple):
    control: Controller
    jobs: Jobs
    logs: Logs
    webhooks: Webhooks
    search_controller: SearchController
    make_trial_job: dict[str, MakeTrialJob]
    """By the name of the dialect, which adds its own."""
    sweeper: Sweeper

    async def start(self) -> None:
        await self.control.start()
        self.search_controller.start()
        self.webhooks.start()

    async def close(self) -> None:
        await self.search_controller.close()
        await self.webhooks.close()
        await self.control.close()


def make_job_parts(base: Base, engines: Engines) -> JobParts:
    settings, store = base.settings, base.store
    quotas = Quotas(settings.projects, settings.keys)
    control = Controller(store, engines.registry, quotas=quotas, webhooks=settings.webhooks)
    webhooks = Webhooks(store, settings.webhooks)
    control.messages_made = webhooks.wake
    base.storage.embedded.mounted = control.mounted
    base.job_keys.project = control.project_of
    jobs = Jobs(store, control, engines.registry, base.keys.name_of, settings)
    logs = Logs(jobs)
    make_trial_job: dict[str, MakeTrialJob] = {}
    trial_jobs = TrialJobs(jobs, logs, control, make_trial_job)
    search_controller = SearchController(store, trial_jobs, _search_pool(base), settings.limits)

    def changed(job_id: int) -> None:
        search_controller.look_at(job_id)
        base.job_keys.job_changed(job_id)

    control.changes.listener = changed
    operations = Aged("operations of Vertex", "operation_days", store.assets.of_kind(VERTEX_OPERATION))
    files = [
        *swept_files(base),
        Files("environments of runtimes", "runtime_days", engines.local.clear_environments),
    ]
    sweeper = Sweeper(store, engines.by_name, settings.limits, control.delete, files, [operations])
    return JobParts(control, jobs, logs, webhooks, search_controller, make_trial_job, sweeper)


def _search_pool(base: Base) -> SearchWorkerPool:
    limits = base.settings.limits
    return SearchWorkerPool(
        limits.search_processes, limits.search_memory, cache=base.paths.search, identity=nobody()
    )
