"""What jobs can ask for here: engines, flavors, pools."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from turnout.config import SHARED_CLUSTERS
from turnout.dialects.modelarts import body, catalogue, reply
from turnout.dialects.modelarts.errors import NO_SUCH_FLAVOR, NO_SUCH_POOL
from turnout.dialects.modelarts.house import House, Routes
from turnout.errors import NotFound
from turnout.service import Caller

_KINDS = ("", "CPU", "GPU", "Ascend")
_LABEL = "os.modelarts/"


async def engines(house: House, request: Request, caller: Caller) -> Response:
    items = [engine.listed() for engine in catalogue.engines().values()]
    return reply.json({"total": len(items), "items": items})


async def flavors(house: House, request: Request, caller: Caller) -> Response:
    """Of the public pool, as far as this machine has the cards."""
    kind = body.word(request, "flavor_type", "", _KINDS)
    cards = house.jobs.total(SHARED_CLUSTERS[0]).gpus
    found = [
        flavor.listed()
        for flavor in catalogue.flavors().values()
        if not flavor.pool and not flavor.npus and flavor.gpus <= cards and kind in ("", flavor.kind)
    ]
    return reply.json({"total_count": len(found), "flavors": found})


async def largest(house: House, request: Request, caller: Caller) -> Response:
    """How much CPU and memory a container of a flavor can have: the flavor's, or all that there is."""
    flavor_id = body.query_text(request, "flavor_id")
    flavor = catalogue.flavors().get(flavor_id)
    if flavor_id and flavor is None:
        raise NotFound(f"There is no flavor {flavor_id!r}.", field="flavor_id", code=NO_SUCH_FLAVOR)
    pool = body.query_text(request, "pool_id")
    total = house.jobs.total(_cluster(house, pool) if pool else SHARED_CLUSTERS[0])
    cores = int(total.cpu / house.settings.engines.local.overcommit)
    memory = int(total.memory / catalogue.GB)
    if flavor:
        cores, memory = flavor.cores or cores, flavor.memory or memory
    return reply.json({"cpu_core_num": cores, "mem_size": memory})


async def pools(house: House, request: Request, caller: Caller) -> Response:
    wanted = body.word(request, "status", "created", ("created", "failed", "creating"))
    names = house.settings.pools if wanted == "created" else ()
    items = [_pool(house, name) for name in names]
    return reply.json({"apiVersion": "v2", "kind": "PoolList", "items": items})


async def pool(house: House, request: Request, caller: Caller) -> Response:
    name = request.path_params["pool_name"]
    _cluster(house, name)
    return reply.json(_pool(house, name))


ROUTES: Routes = [
    ("GET", "/training-job-engines", engines),
    ("GET", "/training-job-flavors", flavors),
    ("GET", "/training-pool-flavors", largest),
    ("GET", "/pools", pools),
    ("GET", "/pools/{pool_name}", pool),
]


def _cluster(house: House, name: str) -> str:
    """Where a pool's jobs run. Raises NotFound."""
    found = house.settings.pools.get(name)
    if found is None:
        known = ", ".join(house.settings.pools) or "none"
        raise NotFound(f"There is no pool {name!r}; there is {known}.", field="pool_id", code=NO_SUCH_POOL)
    return found.cluster or SHARED_CLUSTERS[0]


def _pool(house: House, name: str) -> dict[str, Any]:
    cards = house.jobs.total(_cluster(house, name)).gpus
    fitting = [one.id for one in catalogue.flavors().values() if one.pool and one.gpus <= cards]
    return {
        "apiVersion": "v2",
        "kind": "Pool",
        "metadata": {
            "name": name,
            "labels": {f"{_LABEL}name": name, f"{_LABEL}workspace.id": body.DEFAULT_WORKSPACE},
            "annotations": {},
        },
        "spec": {"type": "Dedicate", "scope": ["Train"], "resources": [], "jobFlavors": fitting},
        "status": {"phase": "Running", "message": "", "scope": [{"scopeType": "Train", "state": "Enabled"}]},
    }
