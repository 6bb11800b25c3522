"""What a large store costs: when one of many jobs is read, and when the service is idle."""

import asyncio
import random
import statistics
import time
from pathlib import Path

import msgspec
import psutil

from bench.client import CLUSTER, KEY, job_body
from bench.floor import Floor
from bench.service import Service
from bench.table import Row, Table
from turnout.dialects.tia import translate, wire
from turnout.job import Event, EventKind, Job, NewJob, Reason, Replica, ReplicaState, State
from turnout.store import Batch, Store

SMALL, LARGE = 100, 100_000
IDLE_SECONDS = 10


def describe(table: Table, directory: Path, floor: Floor) -> None:
    small, large = Service(directory / "small"), Service(directory / "large")
    try:
        fill(small, SMALL)
        fill(large, _many(table))
        small.start()
        large.start()
        times = _describe(table, {small: SMALL, large: _many(table)})
    finally:
        small.clean()
        large.clean()
    table.add(
        Row(
            "describe",
            f"DescribeJob with {_many(table):,} jobs in the store, to {SMALL}",
            times[large],
            "ms",
            times[small],
            target=1.3,
        )
    )


def idle(table: Table, directory: Path, floor: Floor) -> None:
    starts = 3 if table.quick else 7
    step = table.steps("idle", starts + 1)
    service = Service(directory / "service")
    try:
        fill(service, _many(table))
        service.start()
        service.stop()
        took: list[float] = []
        for _ in range(starts):
            service.stop()
            took.append(service.start())
            step()
        assert service.process is not None
        process = psutil.Process(service.process.pid)
        share = _cpu_share(process)
        resident = process.memory_info().rss / 1e6
        step()
    finally:
        service.clean()
    having = f"{_many(table):,} finished jobs"
    table.add(Row("memory", f"idle with {having}: resident", resident, "MB", target=80, judged="measured"))
    table.add(Row("idle", f"idle with {having}: of one core", share, "%", target=1, judged="measured"))
    table.add(
        Row(
            "healthy",
            f"/healthz after the start with {having}",
            statistics.median(took),
            "s",
            target=0.7,
            judged="measured",
        )
    )


def fill(service: Service, count: int) -> None:
    """Fills the store with succeeded jobs, as the service itself would have written them."""
    service.paths.data.mkdir()
    asyncio.run(_fill(service, count))


async def _fill(service: Service, count: int) -> None:
    store = Store.open("", service.paths.database)
    first = time.time_ns() - count * 1_000_000_000
    for begin in range(0, count, 1000):
        batch = Batch()
        for number in range(begin, min(count, begin + 1000)):
            _finished(batch, number, first + number * 1_000_000_000)
        await store.commit(batch)
    await store.close()


def _finished(batch: Batch, number: int, at: int) -> None:
    request = msgspec.convert(job_body(f"job-{number}", ("/bin/true",)), wire.CreateJob)
    new: NewJob = translate.new_job(request, KEY.project, {})
    job = Job(
        id=(at // 1_000_000) << 20,
        project=KEY.project,
        dialect=new.dialect,
        scope=new.scope,
        handle=new.handle,
        name=new.name,
        cluster=CLUSTER,
        state=State.SUCCEEDED,
        priority=0,
        created=at,
        updated=at,
        attempt=1,
        started=at,
        ended=at,
        reason=Reason.SUCCEEDED,
    )
    replica = Replica(job.id, 1, "master", 0, ReplicaState.SUCCEEDED, "here", "127.1.0.1", 1, "", at, at, 0)
    batch.created.append((job, new))
    batch.attempts.append(replica)
    batch.events.append(Event(job.id, at, EventKind.CREATED, f"created on {CLUSTER}"))
    batch.events.append(Event(job.id, at, EventKind.STARTED, "master-0 runs as process 1"))
    batch.events.append(Event(job.id, at, EventKind.ENDED, "succeeded"))


def _describe(table: Table, services: dict[Service, int]) -> dict[Service, float]:
    count = 300 if table.quick else 2000
    step = table.steps("describe", count)
    times: dict[Service, list[float]] = {service: [] for service in services}
    chance = random.Random(8470)
    for _ in range(count):
        for service, jobs in services.items():
            request = service.requests.describe(f"job-{chance.randrange(jobs)}")
            before = time.perf_counter()
            service.line.ask(request)
            times[service].append((time.perf_counter() - before) * 1e3)
        step()
    return {service: statistics.median(found) for service, found in times.items()}


def _cpu_share(process: psutil.Process) -> float:
    before = process.cpu_times()
    time.sleep(IDLE_SECONDS)
    after = process.cpu_times()
    used = (after.user + after.system) - (before.user + before.system)
    return 100 * used / IDLE_SECONDS


def _many(table: Table) -> int:
    return LARGE // 10 if table.quick else LARGE
