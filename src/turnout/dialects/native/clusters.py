"""`/turnout/v1/clusters`: the list for everybody; `check`, `drain` and `resume` for root."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout.dialects.native import reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.event_stream import stream
from turnout.dialects.native.queue import ResourcesDocument, resources
from turnout.errors import Denied
from turnout.service import Caller, Clusters, NodeView


class NodeJobDocument(msgspec.Struct):
    """A job that runs on a node."""

    id: str
    project: str
    name: str
    replicas: int
    """So many of its replicas."""


class ClusterNodeDocument(msgspec.Struct):
    name: str
    state: str
    """In the cluster's own words."""
    usable: bool
    """Whether it takes jobs."""
    capacity: ResourcesDocument
    used: ResourcesDocument | None
    """What jobs of all users of the cluster have of it; null: the cluster does not say."""
    jobs: list[NodeJobDocument]
    """The reader's own; for root, those of all projects."""


class ClusterDocument(msgspec.Struct):
    name: str
    engine: str
    shared: bool
    """Whether it is one of the names that every installation has."""
    trouble: str
    """Why it starts no jobs at the moment; empty if it does."""
    drained: bool
    nodes: list[ClusterNodeDocument]
    """Empty: this machine, whose nodes are in the queue, or a cluster that does not tell."""


def cluster_routes(clusters: Clusters, guarded: Guard) -> list[Route]:
    async def show(request: Request, caller: Caller) -> Response:
        """Root sees the jobs of all projects unless it names one."""
        project = None if caller.root and not request.query_params.get("project") else caller.project
        views = await clusters.all(project)
        found = [ClusterDocument(*one[:-1], [_node(node) for node in one.nodes]) for one in views]
        return reply.json({"clusters": found})

    async def drain(request: Request, caller: Caller) -> Response:
        _check_root(caller)
        await clusters.drain(request.path_params["name"], True)
        return reply.json({})

    async def resume(request: Request, caller: Caller) -> Response:
        _check_root(caller)
        await clusters.drain(request.path_params["name"], False)
        return reply.json({})

    async def check(request: Request, caller: Caller) -> Response:
        _check_root(caller)
        results = clusters.check(request.path_params["name"])
        return await stream("check", (result._asdict() async for result in results))

    return [
        Route("/turnout/v1/clusters", guarded(show)),
        Route("/turnout/v1/clusters/{name}/check", guarded(check), methods=["POST"]),
        Route("/turnout/v1/clusters/{name}/drain", guarded(drain), methods=["POST"]),
        Route("/turnout/v1/clusters/{name}/resume", guarded(resume), methods=["POST"]),
    ]


def _node(node: NodeView) -> ClusterNodeDocument:
    used = None if node.used is None else resources(node.used)
    jobs = [NodeJobDocument(str(job.id), job.project, job.name, job.replicas) for job in node.jobs]
    return ClusterNodeDocument(node.name, node.state, node.usable, resources(node.capacity), used, jobs)


def _check_root(caller: Caller) -> None:
    if not caller.root:
        raise Denied("only the root key may check and drain clusters")
