"""A service without its HTTP server that runs searches with real processes: a trial is a shell script."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec import json
from msgspec.structs import replace

from tests.engines.local.harness import UnrestrictedHostPaths
from turnout import config
from turnout.control import Controller
from turnout.engines import EngineRegistry
from turnout.engines.local import LocalEngine
from turnout.errors import TurnoutError
from turnout.job import Job, NewJob, Policy, Program, Resources, Role, Search, Spec, Trial, TrialState
from turnout.job.search import Algorithm, Metric, Parameter
from turnout.paths import Paths
from turnout.search import SearchController, SearchWorkerPool
from turnout.search.admission import MOST_WAITING
from turnout.search.worker_pool import PROGRAM
from turnout.service import Caller, Jobs, JobView, Logs, Searches, TrialJobs
from turnout.store import Store

PATIENCE = 100
SCORE = 'echo "score: $x"; '
ME = Caller("alice", "p")


class RunningService(NamedTuple):
    jobs: Jobs
    searches: Searches
    store: Store
    control: Controller

    async def create(self, new: NewJob) -> Job:
        return await self.jobs.create(ME, new)

    async def until(self, job_id: int, holds: Callable[[Job], bool]) -> JobView:
        view = await self.jobs.wait(ME, job_id, holds, PATIENCE)
        assert holds(view.job), view.job
        return view

    async def ended(self, job_id: int) -> JobView:
        return await self.until(job_id, lambda job: not job.live)

    async def trials_until(self, view: JobView, holds: Callable[[list[Trial]], bool]) -> list[Trial]:
        """Its trials, as soon as this holds for them."""
        with self.jobs.watch(view.job.id) as changed:
            async with asyncio.timeout(PATIENCE):
                while True:
                    changed.clear()
                    trials = await self.searches.trials(view)
                    if holds(trials):
                        return trials
                    await changed.wait()


class Harness:
    """Starts services on one data directory, and makes jobs for them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shared = root / "shared"
        self.shared.mkdir(mode=0o777)
        self.shared.chmod(0o777)
        self.policy = Policy(grace=5)
        """The policy of each trial."""
        self.workers = 0
        """Workers of each trial besides its master, with the same script; TF_CONFIG tells them apart."""
        self.trouble: dict[int, TurnoutError] = {}
        """Errors to raise in place of making the jobs of these trials."""
        self.trial_runner: type[TrialJobs] = TrialJobs
        self.program = PROGRAM
        """The program of the search workers."""
        self.most_waiting = MOST_WAITING

    @asynccontextmanager
    async def service(self, **local: object) -> AsyncIterator[RunningService]:
        settings = config.load(flags={"engines": {"local": {"sandbox": "none", **local}}})
        engine = LocalEngine(Paths(self.root / "data"), settings, UnrestrictedHostPaths())
        store = Store.open("", self.root / "turnout.db")
        registry = EngineRegistry({"local": engine}, {"here": "local"})
        control = Controller(store, registry)
        jobs = Jobs(store, control, registry)
        trial_runner = self.trial_runner(jobs, Logs(jobs), control, {"tia": self.trial_job})
        pool = SearchWorkerPool(program=self.program)
        controller = SearchController(store, trial_runner, pool, most_waiting=self.most_waiting)
        control.changes.listener = controller.look_at
        await engine.open()
        await control.start()
        controller.start()
        try:
            yield RunningService(jobs, Searches(store, control, controller), store, control)
        finally:
            await controller.close()
            await control.close()
            await engine.close()
            await store.close()

    def search(self, script: str, search: Search, name: str = "search", **policy: object) -> NewJob:
        """Each trial runs the script: `$x` is its parameter, `$SHARED` a directory, `$TRIAL` its number."""
        spec = Spec((self._role({}),), policy=Policy(**policy), search=search)  # type: ignore[arg-type]
        return NewJob("p", "tia", "tia:here", name, name, "here", spec, json.encode(script))

    def trial_job(self, parent: JobView, trial: Trial) -> NewJob:
        if trial.number in self.trouble:
            raise self.trouble[trial.number]
        env = {name: str(value) for name, value in trial.parameters.items()}
        role = self._role(env | {"TRIAL": str(trial.number)}, json.decode(parent.document, type=str))
        worker = replace(role, name="worker", replicas=self.workers, leads=False)
        roles = (role, worker) if self.workers else (role,)
        spec = Spec(roles, scratch=("/var/hypertune",), policy=self.policy)
        return NewJob(
            "p", "tia", f"trial:{parent.job.id}", trial.id, trial.id, "here", spec, b"{}",
            labels={"trial_of": str(parent.job.id)},
        )  # fmt: skip

    def _role(self, env: Mapping[str, str], script: str = "exit 1") -> Role:
        shared = {"SHARED": str(self.shared), "FILE": "/var/hypertune/output.metrics"}
        program = Program(("sh", "-c", script))
        return Role("master", program, resources=Resources.of(cores=1), env=shared | dict(env), leads=True)


async def outcome(here: RunningService, new: NewJob) -> tuple[JobView, list[Trial]]:
    view = await here.ended((await here.create(new)).id)
    return view, await here.searches.trials(view)


def over(trials: list[Trial]) -> list[Trial]:
    return [one for one in trials if one.state in (TrialState.SUCCEEDED, TrialState.INFEASIBLE)]


def until(name: str) -> str:
    """For a script: wait until this file is in the shared directory."""
    return f'while [ ! -e "$SHARED/{name}" ]; do sleep 0.02; done; '


def along_x(algorithm: str = "random", trials: int = 6, wide: int = 2, **fields: object) -> Search:
    """A search that maximises `score` for x between 0 and 1."""
    return Search(
        parameters=(Parameter("x", "float", 0, 1),),
        metrics=(Metric("score", "max", regex=r"score: (\S+)"),),
        algorithms=(Algorithm(algorithm, {"num_samples": trials}),),
        parallel=wide,
        **fields,  # type: ignore[arg-type]
    )
