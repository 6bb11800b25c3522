"""GET `/turnout/v1/queue`: the capacity of each engine, who holds what, and who waits for what."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects import Context
from turnout.dialects.native import reply
from turnout.dialects.native.auth import Guard
from turnout.job import Job
from turnout.job.resources import CORE, Share
from turnout.service import Caller, Overview


class ResourcesDocument(msgspec.Struct):
    cpu: float
    """Cores."""
    memory: int
    """Bytes."""
    gpus: int


class NodeDocument(msgspec.Struct):
    name: str
    capacity: ResourcesDocument
    free: ResourcesDocument


class QueueJob(msgspec.Struct, kw_only=True):
    id: str
    project: str
    dialect: str
    name: str
    state: str
    priority: int
    cluster: str


class HeldDocument(msgspec.Struct):
    """What a job holds on one node."""

    node: str
    holds: ResourcesDocument
    devices: list[int]
    """The numbers of its GPUs; empty if only the cluster knows them."""
    replicas: int


class HolderDocument(QueueJob, kw_only=True):
    holds: ResourcesDocument
    nodes: list[HeldDocument]


class WaiterDocument(QueueJob, kw_only=True):
    needs: ResourcesDocument
    place: int
    """In the queue, counted from 1."""
    waits_for: str


class EngineDocument(msgspec.Struct, kw_only=True):
    engine: str
    clusters: list[str]
    trouble: str
    """Why it starts no jobs at the moment; empty if it does."""
    capacity: ResourcesDocument
    free: ResourcesDocument
    nodes: list[NodeDocument]
    holding: list[HolderDocument]
    holding_count: int
    """Of all projects."""
    held_by_others: ResourcesDocument
    """By jobs of other projects, which are not in `holding`."""
    waiting: list[WaiterDocument]
    waiting_count: int
    """Of all projects."""


def queue_routes(context: Context, guarded: Guard) -> list[Route]:
    async def queue(request: Request, caller: Caller) -> Response:
        """Root sees all projects unless it names one; other keys see their own jobs, and how much others hold."""
        project = None if caller.root and not request.query_params.get("project") else caller.project
        troubles = context.jobs.cluster_troubles()
        engines = [_engine(context, one, troubles) for one in context.jobs.overviews(project)]
        return reply.json({"engines": engines})

    return [Route("/turnout/v1/queue", guarded(queue))]


def _engine(context: Context, seen: Overview, troubles: dict[str, str]) -> EngineDocument:
    clusters = context.clusters.names_of(seen.engine)
    return EngineDocument(
        engine=seen.engine,
        clusters=clusters,
        trouble=troubles.get(clusters[0], "") if clusters else "",
        capacity=resources(seen.total),
        free=resources(seen.free),
        nodes=[
            NodeDocument(
                node.name, resources(Share(node.millicores, node.memory, node.gpus)), resources(free)
            )
            for node, free in seen.nodes
        ],
        holding=[
            HolderDocument(
                **_job(one.job),
                holds=resources(one.held),
                nodes=[
                    HeldDocument(held.node, resources(held.share), list(held.gpus), held.replicas)
                    for held in one.by_node
                ],
            )
            for one in seen.holders
        ],
        holding_count=seen.placed,
        held_by_others=resources(seen.others),
        waiting=[
            WaiterDocument(
                **_job(one.job), needs=resources(one.needs), place=one.place, waits_for=one.waits_for
            )
            for one in seen.waiters
        ],
        waiting_count=seen.waiting,
    )


def _job(job: Job) -> dict[str, Any]:
    return {
        "id": str(job.id),
        "project": job.project,
        "dialect": job.dialect,
        "name": job.name,
        "state": str(job.state),
        "priority": job.priority,
        "cluster": job.cluster,
    }


def resources(share: Share) -> ResourcesDocument:
    """What is free can be less than nothing after a machine got smaller; it is shown as nothing."""
    return ResourcesDocument(max(0, share.millicores) / CORE, max(0, share.memory), max(0, share.gpus))
