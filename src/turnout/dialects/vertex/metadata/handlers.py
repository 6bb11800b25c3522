"""Metadata stores, and the contexts, executions and artifacts in them."""

import re
from typing import Any

from starlette.responses import Response

from turnout.dialects import Context as Services
from turnout.dialects.vertex import operations, reply, resource_ids, resource_list, resource_store
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.document_filter import Fields, field
from turnout.dialects.vertex.job_list import in_form
from turnout.dialects.vertex.metadata.wire import (
    AddContextArtifactsAndExecutionsRequest,
    AddExecutionEventsRequest,
    Artifact,
    Context,
    ContextChildrenRequest,
    Execution,
    LineageSubgraph,
    MetadataStore,
)
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.field_path import quoted
from turnout.dialects.vertex.protobuf.times import spell_time
from turnout.dialects.vertex.resource_list import stored
from turnout.dialects.vertex.resource_names import project_number
from turnout.dialects.vertex.resource_store import BASE_FIELDS, Kind, change, find, render, shown
from turnout.errors import Invalid, WrongState
from turnout.job import Asset

_CONTEXTS, _EVENTS = "_contexts", "_events"
"""Relations in documents: the contexts of an artifact or execution, and the events of an execution."""

_NODE_FIELDS: Fields = {
    **BASE_FIELDS,
    "schema_title": ("text", field("schemaTitle")),
    "schema_version": ("text", field("schemaVersion")),
    "metadata": ("map", field("metadata")),
    "description": ("text", field("description")),
    "state": ("text", field("state")),
    "uri": ("text", field("uri")),
    "in_context": ("function", lambda document: document.get(_CONTEXTS, ())),
}
_CONTEXT_FIELDS: Fields = {
    **{name: one for name, one in _NODE_FIELDS.items() if name not in ("state", "uri", "in_context")},
    "parent_contexts": ("list", field("parentContexts")),
}
_CHANGEABLE = ("displayName", "description", "labels", "metadata", "schemaTitle", "schemaVersion")

CONTEXT = Kind("Context", "contexts", Context, "contextId", fields=_CONTEXT_FIELDS, changeable=_CHANGEABLE)
EXECUTION = Kind(
    "Execution",
    "executions",
    Execution,
    "executionId",
    fields=_NODE_FIELDS,
    changeable=(*_CHANGEABLE, "state"),
)
ARTIFACT = Kind(
    "Artifact", "artifacts", Artifact, "artifactId", fields=_NODE_FIELDS,
    changeable=(*_CHANGEABLE, "state", "uri"),
)  # fmt: skip
NODES = {kind.collection: kind for kind in (CONTEXT, EXECUTION, ARTIFACT)}
STORE = Kind(
    "MetadataStore", "metadataStores", MetadataStore, "metadataStoreId", children=tuple(NODES.values())
)

_NAME = re.compile(r"projects/([^/]+)/locations/([^/]+)/metadataStores/([^/]+)/(\w+)/([^/]+)")


async def create_store(context: Services, call: Call) -> Response:
    asset = await resource_store.create(context, call, STORE)
    done = await operations.finished(
        context, call, "MetadataStore", render(asset, STORE), metadata="CreateMetadataStoreOperationMetadata"
    )
    return reply.json(done)


async def get_store(context: Services, call: Call) -> Response:
    return await resource_store.get(context, call, STORE)


async def list_stores(context: Services, call: Call) -> Response:
    return await resource_store.list_page(context, call, STORE)


async def delete_store(context: Services, call: Call) -> Response:
    return await resource_store.delete(context, call, STORE)


async def create(context: Services, call: Call) -> Response:
    kind = _kind(call)
    return resource_store.respond(call, kind, await resource_store.create(context, call, kind, STORE))


async def get(context: Services, call: Call) -> Response:
    return await resource_store.get(context, call, _kind(call))


async def list_nodes(context: Services, call: Call) -> Response:
    return await resource_store.list_page(context, call, _kind(call), STORE)


async def patch(context: Services, call: Call) -> Response:
    kind = _kind(call)
    return resource_store.respond(call, kind, await resource_store.patch(context, call, kind))


async def delete(context: Services, call: Call) -> Response:
    """A context with children is deleted only with `force`; its children, artifacts and executions stay."""
    kind = _kind(call)
    if kind is CONTEXT and call.query.get("force") != "true":
        asset = await find(context, call, kind, call.resource)
        name = resource_store.name_of(asset)
        async for assets in _nodes(context, call, CONTEXT):
            if any(name in stored(one).get("parentContexts", ()) for one in assets):
                raise WrongState(f"The Context {name} has children. Delete them first, or set force.")
    return await resource_store.delete(context, call, kind)


async def add_children(context: Services, call: Call) -> Response:
    return await _relate_children(context, call, add=True)


async def remove_children(context: Services, call: Call) -> Response:
    return await _relate_children(context, call, add=False)


async def add_members(context: Services, call: Call) -> Response:
    """Puts artifacts and executions into a context."""
    request, path = codec.decode(
        call.body, AddContextArtifactsAndExecutionsRequest, "add_context_artifacts_and_executions_request"
    )
    name = resource_store.name_of(await find(context, call, CONTEXT, call.resource))
    members = [
        (kind, _parse(call, text, kind, (path / names / index).as_sent))
        for kind, names, texts in (
            (ARTIFACT, "artifacts", request.artifacts),
            (EXECUTION, "executions", request.executions),
        )
        for index, text in enumerate(texts)
    ]
    for kind, resource in members:
        await find(context, call, kind, resource)
    for kind, resource in members:
        await change(context, call, kind, resource, lambda document: _add(document, _CONTEXTS, name))
    return reply.empty()


async def add_events(context: Services, call: Call) -> Response:
    """Says which artifacts an execution reads and makes."""
    request, path = codec.decode(call.body, AddExecutionEventsRequest, "add_execution_events_request")
    name = resource_store.name_of(await find(context, call, EXECUTION, call.resource))
    at = spell_time(resource_ids.now(context))
    events: list[dict[str, Any]] = []
    for index, event in enumerate(request.events):
        artifact = _parse(call, event.artifact, ARTIFACT, (path / "events" / index / "artifact").as_sent)
        await find(context, call, ARTIFACT, artifact)
        full = f"{call.parent}/{'/'.join(artifact)}"
        events.append(codec.encode(event) | {"artifact": full, "execution": name, "eventTime": at})

    def edit(document: dict[str, Any]) -> None:
        document.setdefault(_EVENTS, []).extend(events)

    await change(context, call, EXECUTION, call.resource, edit)
    return reply.empty()


async def query_execution(context: Services, call: Call) -> Response:
    """The execution, the artifacts of its events, and the events."""
    execution = await find(context, call, EXECUTION, call.resource)
    return await _subgraph(context, call, [execution], [])


async def query_context(context: Services, call: Call) -> Response:
    """The artifacts and executions in the context, and the events between them."""
    name = resource_store.name_of(await find(context, call, CONTEXT, call.resource))
    found: dict[str, list[Asset]] = {}
    for kind in (EXECUTION, ARTIFACT):
        members = found[kind.name] = []
        async for assets in _nodes(context, call, kind):
            members += [one for one in assets if name in stored(one).get(_CONTEXTS, ())]
    return await _subgraph(context, call, found["Execution"], found["Artifact"])


async def query_artifact(context: Services, call: Call) -> Response:
    """The artifact, and the executions that read or made it."""
    artifact = await find(context, call, ARTIFACT, call.resource)
    name = resource_store.name_of(artifact)
    users: list[Asset] = []
    async for assets in _nodes(context, call, EXECUTION):
        users += [
            one for one in assets if any(event["artifact"] == name for event in stored(one).get(_EVENTS, ()))
        ]
    return await _subgraph(context, call, users, [artifact])


async def _relate_children(context: Services, call: Call, *, add: bool) -> Response:
    request, path = codec.decode(call.body, ContextChildrenRequest, "context_children_request")
    parent = resource_store.name_of(await find(context, call, CONTEXT, call.resource))
    children = [
        _parse(call, text, CONTEXT, (path / "childContexts" / index).as_sent)
        for index, text in enumerate(request.child_contexts)
    ]
    for child in children:
        await find(context, call, CONTEXT, child)
        if child == call.resource:
            raise Invalid("childContexts: a context cannot be its own child.", field="childContexts")
    for child in children:
        edit = _add if add else _remove
        await change(
            context,
            call,
            CONTEXT,
            child,
            lambda document, edit=edit: edit(document, "parentContexts", parent),
        )
    return reply.empty()


async def _subgraph(
    context: Services, call: Call, executions: list[Asset], artifacts: list[Asset]
) -> Response:
    events = [event for one in executions for event in stored(one).get(_EVENTS, ())]
    by_name = {resource_store.name_of(one): one for one in artifacts}
    for event in events:
        if event["artifact"] not in by_name:
            resource = tuple(event["artifact"].split("/")[4:])
            by_name[event["artifact"]] = await find(context, call, ARTIFACT, resource)
    document = {
        "artifacts": [shown(render(one, ARTIFACT)) for one in by_name.values()],
        "executions": [shown(render(one, EXECUTION)) for one in executions],
        "events": events,
    }
    given = {name: value for name, value in document.items() if value}
    return reply.json(in_form(call, given, LineageSubgraph))


def _nodes(context: Services, call: Call, kind: Kind) -> Any:
    """All nodes of a kind in the store that the address names."""
    return resource_list.pieces(context, call, kind.asset, resource_store.scope_of(call, call.resource[:2]))


def _kind(call: Call) -> Kind:
    return NODES[call.resource[2]]


def _parse(call: Call, text: str, kind: Kind, name: str) -> tuple[str, ...]:
    """A resource name in a request, split like the address of a call. Raises Invalid."""
    match = _NAME.fullmatch(text)
    project = call.caller.project
    if not match or match[4] != kind.collection or match[3] != call.resource[1] or match[2] != call.location:
        raise Invalid(
            f"{name}: {quoted(text)} must have the form projects/{{project}}/locations/{call.location}/metadataStores/"
            f"{call.resource[1]}/{kind.collection}/{{id}}.",
            field=name,
        )
    if match[1] not in (project, project_number(project)):
        raise Invalid(f"{name}: {quoted(text)} is in another project.", field=name)
    return ("metadataStores", match[3], match[4], match[5])


def _add(document: dict[str, Any], relation: str, name: str) -> None:
    names = document.setdefault(relation, [])
    if name not in names:
        names.append(name)


def _remove(document: dict[str, Any], relation: str, name: str) -> None:
    document[relation] = [one for one in document.get(relation, ()) if one != name]
