"""Creates jobs through the clouds' own SDKs. Each job records its runs, so that its result is known."""

import contextlib
import itertools
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from google.cloud import aiplatform_v1

from soak.searches import Search
from tests.dialects.modelarts.driving import Cloud as Huawei
from tests.dialects.modelarts.driving import job as modelarts_job
from tests.dialects.vertex.driving import Cloud as Google
from tests.running import Service

IN, OUT = "/home/ma-user/in", "/home/ma-user/out"
PROGRAM = (
    'a=${{MA_SCHEDULE_CNT:-1}}; echo "begin $a"; echo run >> "$OUT/runs"; i=0; '
    'while [ $i -lt {lines} ]; do echo "line $a.$i"; i=$((i+1)); sleep {pause}; done; {give_up}'
    'echo {name} > "$OUT/result.new" && mv "$OUT/result.new" "$OUT/result"; echo "end $a"; exit {code}'
)
GIVE_UP = '[ "$a" -gt {failures} ] || exit 9; '
STAGED = "modelarts, remote store"
RETRIED = "modelarts, retried"
"""Its first attempts fail, and a rule retries it."""
FAR = "soak-far"
"""A bucket in a remote store: its data is downloaded before a job and uploaded after it."""
INPUT = "the input\n"
RANKS = (
    {"created": 0, "queued": 1, "preparing": 2, "running": 3, "stopping": 4}
    | {"Created": 0, "Creating": 0, "Pending": 1, "Running": 3, "Terminating": 4}
    | {"JOB_STATE_QUEUED": 1, "JOB_STATE_PENDING": 2, "JOB_STATE_RUNNING": 3, "JOB_STATE_CANCELLING": 4}
)
"""The order of the states of every API."""
ENDED = 5
NATIVE = "native"


@dataclass
class Job:
    api: str
    name: str
    lines: int
    pause: float
    code: int
    failures: int = 0
    """The number of attempts that fail before the last one."""
    id: str = ""
    """Its id in the native API; empty if the response to its create was lost."""
    sent: float = field(default_factory=time.monotonic)
    name_there: str = ""
    """Its id in its own API."""
    seen: dict[str, list[str]] = field(default_factory=lambda: {NATIVE: [], "sdk": []})
    """The states that each poller saw, one after the other."""
    ended: float = math.inf
    """When it was first seen to have ended."""

    @property
    def bucket(self) -> str:
        return f"soak-{self.name}"

    @property
    def said(self) -> list[list[str]]:
        """What each attempt prints."""
        before = [INPUT.strip()] if self.api == STAGED else []
        attempts = [
            [*before, f"begin {attempt}", *(f"line {attempt}.{number}" for number in range(self.lines))]
            for attempt in range(1, self.failures + 2)
        ]
        attempts[-1].append(f"end {len(attempts)}")
        return attempts

    def script(self, out: str) -> str:
        give_up = GIVE_UP.format(failures=self.failures) if self.failures else ""
        body = PROGRAM.format(
            lines=self.lines, pause=self.pause, give_up=give_up, name=self.name, code=self.code
        )
        read = f"cat {IN}/data; " if self.api == STAGED else ""
        return f'OUT="{out}"; {read}{body}'


class Load:
    def __init__(self, service: Service, seed: int) -> None:
        self.jobs: list[Job] = []
        self.searches: list[Search] = []
        self.refused = 0
        self._service = service
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self._stop = threading.Event()
        self._make = {
            "tia": self._tia,
            "modelarts": self._modelarts,
            "vertex": self._vertex,
            STAGED: self._modelarts,
            RETRIED: self._modelarts,
        }
        polls = [
            partial(self._poll, NATIVE, tuple(self._make), self._native_state),
            partial(self._poll, "sdk", ("tia",), self._tia_state),
            partial(self._poll, "sdk", ("modelarts", STAGED, RETRIED), self._modelarts_state),
            partial(self._poll, "sdk", ("vertex",), self._vertex_state),
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(step,), daemon=True) for step in (self._create, *polls)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, step: Any) -> None:
        while not self._stop.is_set():
            step()

    def _create(self) -> None:
        number = next(self._numbers)
        chance = self._chance
        api = tuple(self._make)[number % len(self._make)]
        job = Job(
            api,
            f"s{number}",
            chance.randrange(1, 40),
            chance.choice((0.01, 0.05, 0.2)),
            0 if api == RETRIED else chance.choice((0, 0, 0, 1, 3, 77)),
            chance.choice((1, 2)) if api == RETRIED else 0,
        )
        self.jobs.append(job)
        try:
            job.name_there = self._make[job.api](job)
            job.id = job.name_there.rpartition("/")[2]
        except Exception:  # noqa: BLE001 - the service is dead, paused or out of space: the job may exist or not
            self.refused += 1
        if number % 16 == 8:
            search = Search(f"search{number}")
            with contextlib.suppress(Exception):
                search.create(self._service)
                self.searches.append(search)
        self._stop.wait(chance.expovariate(4))

    def _tia(self, job: Job) -> str:
        where = f"cos://{job.bucket}-1250000000.cos.ap-beijing.myqcloud.com/:/data/b"
        self._service.put(f"cos://{job.bucket}/package")
        self._service.create(job.name, "sh", "-c", job.script("$PWD"), PackageDir=[where])
        return job.name

    def _modelarts(self, job: Job) -> str:
        parts = {"outputs": [_channel("out", OUT, place(job))]}
        if job.api == STAGED:
            parts["inputs"] = [_channel("in", IN, f"{FAR}/in")]
        rule = {"annotations": {"fault-tolerance/job-unconditional-retry": "true"}}
        metadata = rule if job.failures else {}
        body = modelarts_job(job.name, job.script(OUT), algorithm=parts, metadata=metadata)
        return str(Huawei(self._service)("create_training_job", body=body).metadata.id)

    def _vertex(self, job: Job) -> str:
        google = Google(self._service, "default")
        container = {
            "image_uri": "python:3.11",
            "command": ["/bin/sh", "-c", job.script(f"/gcs/{job.bucket}")],
        }
        pool = {
            "machine_spec": {"machine_type": "n1-standard-4"},
            "replica_count": 1,
            "container_spec": container,
        }
        wanted = aiplatform_v1.CustomJob(
            {"display_name": job.name, "job_spec": {"worker_pool_specs": [pool]}}
        )
        made = google.client().create_custom_job(parent=google.parent, custom_job=wanted, timeout=30)
        return made.name

    def _poll(self, who: str, apis: tuple[str, ...], state_of: Callable[[Job], str]) -> None:
        """Requests the states of all jobs that have not ended."""
        if who == NATIVE:
            self._poll_searches()
        for job in list(self.jobs):
            if self._stop.is_set():
                return
            seen = job.seen[who]
            if job.api not in apis or not job.id or (seen and RANKS.get(seen[-1], ENDED) == ENDED):
                continue
            with contextlib.suppress(Exception):  # the service is dead or paused
                state = state_of(job)
                if not seen or seen[-1] != state:
                    seen.append(state)
                if RANKS.get(state, ENDED) == ENDED:
                    job.ended = min(job.ended, time.monotonic())
        self._stop.wait(0.2)

    def _poll_searches(self) -> None:
        for search in [one for one in self.searches if one.ended == math.inf]:
            with contextlib.suppress(Exception):
                if self._service.native(f"/jobs/{search.id}", 5)["ended"] is not None:
                    search.ended = time.monotonic()

    def _native_state(self, job: Job) -> str:
        return str(self._service.native(f"/jobs/{job.id}", 5)["state"])

    def _tia_state(self, job: Job) -> str:
        return str(self._service.describe(job.name).State)

    def _modelarts_state(self, job: Job) -> str:
        return str(Huawei(self._service).details(job.id).status.phase)

    def _vertex_state(self, job: Job) -> str:
        found = Google(self._service, "default").client().get_custom_job(name=job.name_there, timeout=5)
        return found.state.name


def place(job: Job) -> str:
    """The bucket and directory of its output."""
    return f"{FAR}/{job.name}" if job.api == STAGED else f"{job.bucket}/out"


def went_back(job: Job) -> str:
    """The states that a poller saw, if they went back more often than the job was retried."""
    for seen in job.seen.values():
        ranks = [RANKS.get(state, ENDED) for state in seen]
        back = [rank for before, rank in itertools.pairwise(ranks) if rank < before]
        if len(back) > job.failures or ENDED in ranks[:-1]:
            return " ".join(seen)
    return ""


def _channel(name: str, local: str, where: str) -> dict[str, Any]:
    return {"name": name, "local_dir": local, "remote": {"obs": {"obs_url": f"obs://{where}/"}}}
