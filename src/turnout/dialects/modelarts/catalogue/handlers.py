"""Lists the engines, flavors and pools that jobs can use."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from turnout.config import SHARED_CLUSTERS
from turnout.dialects.modelarts import fields, reply
from turnout.dialects.modelarts.catalogue import tables
from turnout.dialects.modelarts.context import Context, Routes
from turnout.dialects.modelarts.errors import NO_SUCH_FLAVOR, NO_SUCH_POOL
from turnout.dialects.modelarts.names import DEFAULT_WORKSPACE
from turnout.dialects.modelarts.observe.tasks import HOST_IP
from turnout.errors import NotFound
from turnout.job.resources import CORE
from turnout.service import Caller

_KINDS = ("", "CPU", "GPU", "Ascend")
_LABEL = "os.modelarts/"


async def engines(context: Context, request: Request, caller: Caller) -> Response:
    items = [engine.listed() for engine in tables.engines().values()]
    return reply.json({"total": len(items), "items": items})


async def flavors(context: Context, request: Request, caller: Caller) -> Response:
    """The flavors of the public pool for which this machine has enough GPUs."""
    kind = fields.choice(request.query_params, "flavor_type", "", _KINDS)
    gpus = context.jobs.total(SHARED_CLUSTERS[0]).gpus
    found = [
        flavor.listed()
        for flavor in tables.flavors().values()
        if not flavor.pool and not flavor.npus and flavor.gpus <= gpus and kind in ("", flavor.kind)
    ]
    return reply.json({"total_count": len(found), "flavors": found})


async def show_largest_container(context: Context, request: Request, caller: Caller) -> Response:
    """CPU and memory of the largest container of a flavor: the flavor's own, or all of the machine."""
    flavor_id = fields.query_text(request.query_params, "flavor_id")
    flavor = tables.flavors().get(flavor_id)
    if flavor_id and flavor is None:
        raise NotFound(f"There is no flavor {flavor_id!r}.", field="flavor_id", code=NO_SUCH_FLAVOR)
    pool = fields.query_text(request.query_params, "pool_id")
    total = context.jobs.total(_cluster(context, pool) if pool else SHARED_CLUSTERS[0])
    cores = int(total.millicores / CORE / context.settings.engines.local.overcommit)
    memory = int(total.memory / tables.GB)
    if flavor:
        cores, memory = flavor.cores or cores, flavor.memory or memory
    return reply.json({"cpu_core_num": cores, "mem_size": memory})


async def pools(context: Context, request: Request, caller: Caller) -> Response:
    status = fields.choice(request.query_params, "status", "created", ("created", "failed", "creating"))
    names = context.settings.pools if status == "created" else ()
    items = [_pool(context, name) for name in names]
    return reply.json({"apiVersion": "v2", "kind": "PoolList", "items": items})


async def pool(context: Context, request: Request, caller: Caller) -> Response:
    name = request.path_params["pool_name"]
    _cluster(context, name)
    return reply.json(_pool(context, name))


async def pool_nodes(context: Context, request: Request, caller: Caller) -> Response:
    """The nodes of a pool: this machine is the only one."""
    name = request.path_params["pool_name"]
    total = context.jobs.total(_cluster(context, name))
    cores = int(total.millicores / CORE / context.settings.engines.local.overcommit)
    resources = {"cpu": str(cores), "memory": f"{int(total.memory / tables.GB)}Gi"}
    if total.gpus:
        resources["nvidia.com/gpu"] = str(total.gpus)
    node = {
        "apiVersion": "v2",
        "kind": "Node",
        "metadata": {"name": HOST_IP, "labels": {f"{_LABEL}name": HOST_IP}, "annotations": {}},
        "spec": {"flavor": ""},
        "status": {
            "phase": "Available",
            "az": "",
            "privateIp": HOST_IP,
            "resources": resources,
        },
    }
    return reply.json({"apiVersion": "v2", "kind": "NodeList", "items": [node]})


ROUTES: Routes = [
    ("GET", "/training-job-engines", engines),
    ("GET", "/training-job-flavors", flavors),
    ("GET", "/training-pool-flavors", show_largest_container),
    ("GET", "/pools", pools),
    ("GET", "/pools/{pool_name}", pool),
    ("GET", "/pools/{pool_name}/nodes", pool_nodes),
]


def _cluster(context: Context, name: str) -> str:
    """The cluster of a pool. Raises NotFound."""
    found = context.settings.pools.get(name)
    if found is None:
        known = ", ".join(context.settings.pools) or "none"
        raise NotFound(
            f"There is no pool {name!r}; the pools are: {known}.", field="pool_id", code=NO_SUCH_POOL
        )
    return found.cluster or SHARED_CLUSTERS[0]


def _pool(context: Context, name: str) -> dict[str, Any]:
    gpus = context.jobs.total(_cluster(context, name)).gpus
    flavors = () if context.settings.pools[name].flavor_type == "CPU" else tables.flavors().values()
    fitting = [flavor.id for flavor in flavors if flavor.pool and flavor.gpus <= gpus]
    return {
        "apiVersion": "v2",
        "kind": "Pool",
        "metadata": {
            "name": name,
            "labels": {f"{_LABEL}name": name, f"{_LABEL}workspace.id": DEFAULT_WORKSPACE},
            "annotations": {},
        },
        "spec": {"type": "Dedicate", "scope": ["Train"], "resources": [], "jobFlavors": fitting},
        "status": {"phase": "Running", "message": "", "scope": [{"scopeType": "Train", "state": "Enabled"}]},
    }
