"""Persistent resources: create, get, list, delete. Each is a name of a cluster of the settings.

A resource that is named like a cluster of the settings is that cluster; any other is the default cluster. Nothing is
reserved: a job that names one waits in the queue of its cluster.
"""

from typing import Any

from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import operations, reply, resource_store
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.custom_jobs import validate
from turnout.dialects.vertex.document_filter import Fields, field
from turnout.dialects.vertex.installation import Installation
from turnout.dialects.vertex.persistent_resources.wire import PersistentResource
from turnout.dialects.vertex.protobuf.codec import Decoded
from turnout.dialects.vertex.resource_store import BASE_FIELDS, Kind, find, render
from turnout.errors import NotFound, Unsupported

_FIELDS: Fields = {**BASE_FIELDS, "state": ("text", field("state"))}
RESOURCE = Kind(
    "PersistentResource", "persistentResources", PersistentResource, "persistentResourceId", True, _FIELDS,
    defaults={"state": "RUNNING"},
)  # fmt: skip


async def create(context: Context, call: Call) -> Response:
    asset = await resource_store.create(context, call, RESOURCE, check=_check)
    done = await operations.finished(
        context, call, "PersistentResource", render(asset, RESOURCE),
        metadata="CreatePersistentResourceOperationMetadata",
    )  # fmt: skip
    return reply.json(done)


async def get(context: Context, call: Call) -> Response:
    return await resource_store.get(context, call, RESOURCE)


async def list_resources(context: Context, call: Call) -> Response:
    return await resource_store.list_page(context, call, RESOURCE)


async def delete(context: Context, call: Call) -> Response:
    """Jobs that were created with its name are not affected."""
    return await resource_store.delete(context, call, RESOURCE)


async def installation(context: Context, call: Call, resource_id: str) -> Installation:
    """What a job is translated for, with the persistent resource that it names, if it exists."""
    found = Installation.of(context.settings, call.caller.project, call.location, context.images)
    if not resource_id or resource_id in found.clusters:
        return found
    try:
        await find(context, call, RESOURCE, (RESOURCE.collection, resource_id[:200]))
    except NotFound:
        return found
    return found._replace(resources={resource_id: found.cluster})


def _check(decoded: Decoded[Any]) -> None:
    message, path = decoded
    assert isinstance(message, PersistentResource)
    if not message.resource_pools:
        raise (path / "resourcePools").missing()
    for index, pool in enumerate(message.resource_pools):
        if pool.machine_spec is None or not pool.machine_spec.machine_type:
            raise (path / "resourcePools" / index / "machineSpec" / "machineType").missing()
    validate.labels(message.labels, path / "labels")
    if message.resource_runtime_spec and message.resource_runtime_spec.ray_spec:
        name = (path / "resourceRuntimeSpec" / "raySpec").as_sent
        raise Unsupported(
            f"{name} is not supported: a persistent resource is a cluster of the settings, and runs custom jobs.",
            field=name,
        )
