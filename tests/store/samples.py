"""Jobs to put into a store."""

from turnout.job import Event, EventKind, IdMaker, Job, NewJob, Program, Replica, Role, Spec, State
from turnout.store import Batch

SPEC = Spec(
    roles=(
        Role("master", Program(("python3", "train.py"), runtime="tia-1.7.0"), leads=True),
        Role("worker", Program(("python3", "train.py")), replicas=2, env={"LANG": "zh_CN.UTF-8"}),
    )
)

_ids = IdMaker()


def job(name: str = "", project: str = "default", scope: str = "tia:ap-beijing", at: int = 10**18) -> Job:
    """Queued, created at `at`; later ones have larger ids."""
    job_id = _ids.next(at)
    return Job(
        id=job_id,
        project=project,
        dialect="tia",
        scope=scope,
        handle=name,
        name=name,
        cluster="ap-beijing",
        state=State.QUEUED,
        priority=0,
        created=at,
        updated=at,
    )


def new(job: Job, document: bytes = b"{}", spec: Spec = SPEC) -> tuple[Job, NewJob]:
    return job, NewJob(
        project=job.project,
        dialect=job.dialect,
        scope=job.scope,
        handle=job.handle,
        name=job.name,
        cluster=job.cluster,
        spec=spec,
        document=document,
    )


def creation(*jobs: Job) -> Batch:
    return Batch(
        created=[new(one) for one in jobs],
        events=[Event(one.id, one.created, EventKind.CREATED, "created") for one in jobs],
    )


def gang(job: Job, number: int = 1) -> list[Replica]:
    return [
        Replica(job.id, number, "master", 0),
        *(Replica(job.id, number, "worker", index) for index in range(2)),
    ]
