"""The description of this API in OpenAPI 3.1, made from the structs of its replies.

`python -m turnout.dialects.native.openapi > docs/openapi.json` writes the file. A test compares it with the routes, and
with what they answer.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from turnout import __version__
from turnout.dialects.native.clusters import ClusterDocument
from turnout.dialects.native.create import Clone, Priority
from turnout.dialects.native.images import ImageDocument
from turnout.dialects.native.keys import KeyDocument, NewKey
from turnout.dialects.native.projects import ProjectDocument
from turnout.dialects.native.queue import EngineDocument
from turnout.dialects.native.runtimes import RuntimeDocument
from turnout.dialects.native.searches import (
    ImportanceDocument,
    SearchDocument,
    SearchesDocument,
    TrialsDocument,
)
from turnout.dialects.native.webhooks import WebhookDocument
from turnout.dialects.native.wire import (
    ApiDocument,
    AuditPage,
    BucketDocument,
    CreatedDocument,
    ExplainDocument,
    ExtentDocument,
    JobDetails,
    JobDocument,
    JobsDocument,
    LinesDocument,
    MeasurementDocument,
    ObjectDocument,
    PageDocument,
    SampleDocument,
)

PREFIX = "/turnout/v1"
EVENTS = "text/event-stream"
TEXT = "text/plain"
BYTES = "application/octet-stream"

Fields = Mapping[str, Any]
"""The types of an object's fields."""

_FILTER = {
    "api": "tia, modelarts, vertex, or several separated by commas",
    "state": "one or more states, or waiting, live, ended",
    "name": "a part of the name, or a pattern with *",
    "label": "key or key=value",
    "cluster": "one or more clusters",
    "owner": "one or more keys, root, or me",
    "since": "created at or after: 2h (ago) or a time",
    "until": "created before",
    "ended_since": "ended at or after",
    "order": "created, updated, started, ended, name, priority; with - the largest first",
    "limit": "at most 500",
    "cursor": "the `next` of the previous page",
}
_LINES = {
    "search": "only lines that contain this text",
    "errors": "true: only lines that look like errors",
    "back": "true: the newest first",
    "since": "printed at or after",
    "until": "printed before or at",
    "limit": "at most 5000",
    "cursor": "the `next` of the previous page",
    "replica": "only this replica",
    "attempt": "only this attempt",
}
_AUDIT = {
    "key": "the id of a key, root, or me",
    "job": "the id, UUID or name of a job",
    "since": "at or after: 2h (ago) or a time",
    "limit": "at most 500",
    "cursor": "the `next` of the previous page",
}
_PART = {"replica": "only this replica", "attempt": "only this attempt"}
_FOLLOW = {
    "follow": "true: until the job ends",
    "from": "as Last-Event-ID",
    "since": "printed at or after",
} | _PART
_LIST = {
    "url": "the prefix",
    "delimiter": "/",
    "after": "the `next` of the previous page",
    "limit": "at most 1000",
}
_URL = {"url": "gs://bucket/key, or cos, obs, s3"}
_REPLICA = {"replica": "the name of a replica"}


class Operation(NamedTuple):
    summary: str
    reply: Any
    """A struct, the fields of an object, or a media type."""
    query: Mapping[str, str] = {}
    body: type[msgspec.Struct] | str | None = None
    """A struct or a media type; None: no body."""
    status: str = "200"


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/whoami"): Operation("The caller", {"key": str, "project": str, "root": bool}),
    ("GET", "/jobs"): Operation("Jobs of all APIs", JobsDocument, _FILTER),
    ("POST", "/jobs"): Operation(
        "Create a job from a document of any API",
        CreatedDocument,
        {"name": "replaces the document's", "location": "of a Vertex job"},
        "application/json",
        "201",
    ),
    ("GET", "/jobs/{job}"): Operation("Everything about a job", JobDetails),
    ("DELETE", "/jobs/{job}"): Operation("Delete a job; a running one is stopped first", JobDocument),
    ("GET", "/jobs/{job}/explain"): Operation("Why it waits, or how it ended", ExplainDocument),
    ("GET", "/jobs/{job}/wait"): Operation(
        "Answers when the job has started or ended",
        JobDocument,
        {"for": "started or ended", "timeout": "seconds"},
    ),
    ("GET", "/jobs/{job}/samples"): Operation(
        "Use of CPU, memory and GPU by replica", {"samples": dict[str, list[SampleDocument]]}, _REPLICA
    ),
    ("GET", "/jobs/{job}/metrics"): Operation(
        "What the trials of a search measured", {"trials": dict[str, list[MeasurementDocument]]}
    ),
    ("GET", "/jobs/{job}/shells"): Operation(
        "Links to shells and pages of programs", {"uris": dict[str, str]}
    ),
    ("GET", "/jobs/{job}/logs"): Operation("The log as events, each a list of lines", EVENTS, _FOLLOW),
    ("GET", "/jobs/{job}/logs/lines"): Operation("A page of the log", LinesDocument, _LINES),
    ("GET", "/jobs/{job}/logs/extent"): Operation(
        "The size of the log, and a place in it",
        ExtentDocument,
        {"at": "the place is at this time", "position": "the place is at this byte"} | _PART,
    ),
    ("GET", "/jobs/{job}/logs/download"): Operation("The log as a file", TEXT, _REPLICA),
    ("POST", "/jobs/{job}/stop"): Operation("Stop a job", JobDocument),
    ("GET", "/jobs/{job}/documents"): Operation(
        "The job as a request of each API", {"documents": dict[str, ApiDocument]}
    ),
    ("POST", "/jobs/{job}/clone"): Operation(
        "Create it again, with changes", CreatedDocument, {}, Clone, "201"
    ),
    ("POST", "/jobs/{job}/priority"): Operation("Change its priority", JobDocument, {}, Priority),
    ("GET", "/changes"): Operation("Changes of all jobs as events", EVENTS, {"from": "as Last-Event-ID"}),
    ("GET", "/queue"): Operation("Who holds what, who waits for what", {"engines": list[EngineDocument]}),
    ("GET", "/clusters"): Operation("The clusters", {"clusters": list[ClusterDocument]}),
    ("POST", "/clusters/{name}/check"): Operation("Check a cluster (root)", EVENTS),
    ("POST", "/clusters/{name}/drain"): Operation("New jobs of the cluster wait (root)", {}),
    ("POST", "/clusters/{name}/resume"): Operation("They start again (root)", {}),
    ("GET", "/runtimes"): Operation(
        "The runtimes of this machine (root)", {"runtimes": list[RuntimeDocument]}
    ),
    ("POST", "/runtimes/{name}/make"): Operation("Make the environment of a runtime (root)", EVENTS),
    ("POST", "/runtimes/{name}/check"): Operation("Check a runtime (root)", EVENTS),
    ("GET", "/buckets"): Operation("The buckets", {"buckets": list[BucketDocument]}),
    ("PUT", "/buckets/{name}"): Operation("Make an embedded bucket", {}, status="201"),
    ("DELETE", "/buckets/{name}"): Operation("Remove an empty embedded bucket", {}),
    ("GET", "/objects"): Operation("Objects whose URLs begin with `url`", PageDocument, _LIST),
    ("GET", "/object/info"): Operation("An object's size, time and checksum", ObjectDocument, _URL),
    ("GET", "/object"): Operation("An object", BYTES, _URL),
    ("HEAD", "/object"): Operation("The head of an object", BYTES, _URL),
    ("PUT", "/object"): Operation(
        "Write or copy an object", ObjectDocument, _URL | {"from": "the URL to copy"}, BYTES
    ),
    ("DELETE", "/object"): Operation("Delete an object", {}, _URL),
    ("GET", "/keys"): Operation("All keys (root)", {"keys": list[KeyDocument]}),
    ("POST", "/keys"): Operation("Create a key (root)", KeyDocument, {}, NewKey, "201"),
    ("DELETE", "/keys/{id}"): Operation("Revoke a key (root)", {}),
    ("GET", "/audit"): Operation("Who changed what, the newest first", AuditPage, _AUDIT),
    ("GET", "/webhooks"): Operation("What waits for webhooks (root)", {"webhooks": list[WebhookDocument]}),
    ("GET", "/images"): Operation("The cache of images", {"images": list[ImageDocument]}),
    ("POST", "/images/pull"): Operation("Bring an image from its registry", EVENTS, {"name": "the image"}),
    ("POST", "/images/import"): Operation(
        "Bring an image of the service's machine (root)",
        EVENTS,
        {"source": "oci:DIR:TAG, docker-archive:FILE, …", "name": "the image"},
    ),
    ("DELETE", "/images/{name}"): Operation("Remove an image (root)", {"name": str, "bytes": int}),
    ("GET", "/projects"): Operation(
        "Quotas and weights, and what each project uses", {"projects": list[ProjectDocument]}
    ),
    ("GET", "/searches"): Operation("Searches of all APIs", SearchesDocument, _FILTER),
    ("GET", "/searches/{job}"): Operation("A search: its space, metrics and algorithms", SearchDocument),
    ("GET", "/searches/{job}/trials"): Operation(
        "Trials by number",
        TrialsDocument,
        {"limit": "at most 1000", "cursor": "the `next` of the previous page"},
    ),
    ("GET", "/searches/{job}/importance"): Operation(
        "How much each parameter matters", {"importance": list[ImportanceDocument]}
    ),
    ("POST", "/sweep"): Operation("Remove expired data (root)", EVENTS, {"dry_run": "true: only report"}),
}


class ErrorBody(msgspec.Struct):
    code: str
    message: str


class ErrorDocument(msgspec.Struct):
    error: ErrorBody


def description() -> dict[str, Any]:
    types = [ErrorDocument, *(found for one in OPERATIONS.values() for found in _types(one))]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = {str(found): schema for found, schema in zip(types, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for (method, path), operation in OPERATIONS.items():
        paths.setdefault(PREFIX + path, {})[method.lower()] = _operation(path, operation, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Turnout", "version": __version__},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": components,
        },
    }


def _types(operation: Operation) -> list[Any]:
    reply, body = operation.reply, operation.body
    found = [] if isinstance(reply, str) else list(reply.values()) if isinstance(reply, Mapping) else [reply]
    return found if body is None or isinstance(body, str) else [*found, body]


def _operation(path: str, operation: Operation, schemas: Mapping[str, Any]) -> dict[str, Any]:
    named = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    text = {"type": "string"}
    parameters = [{"name": name, "in": "path", "required": True, "schema": text} for name in named]
    query = {"project": "root: the project to act in"} | dict(operation.query)
    parameters += [
        {"name": name, "in": "query", "description": meaning, "schema": text}
        for name, meaning in query.items()
    ]
    shown: dict[str, Any] = {
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            operation.status: {"description": "done", "content": _content(operation.reply, schemas)},
            "default": {"description": "refused", "content": _content(ErrorDocument, schemas)},
        },
    }
    if operation.body is not None:
        shown["requestBody"] = {"content": _content(operation.body, schemas)}
    return shown


def _content(kind: Any, schemas: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {}}
    if isinstance(kind, Mapping):
        fields = {name: schemas[str(one)] for name, one in kind.items()}
        schema = {"type": "object", "properties": fields, "required": list(fields)}
    else:
        schema = schemas[str(kind)]
    return {"application/json": {"schema": schema}}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(description(), indent=1, ensure_ascii=False) + "\n")
