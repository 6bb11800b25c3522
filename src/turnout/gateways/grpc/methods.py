"""The supported gRPC methods, and the REST call of each."""

import re
from typing import Any, NamedTuple

from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from turnout.gateways.grpc.messages import VERSIONS, MessageClasses
from turnout.gateways.grpc.rules import EMPTY, OPERATION, SERVICES, Rule


class Method(NamedTuple):
    request: type[Message]
    response: type[Message]
    verb: str
    path: str
    """`/v1/{parent}/customJobs`: the request's field `parent` is put there."""
    resource: str
    """The form of that field. `*` is one segment, `**` one or more, `**/` any number."""
    body: str = ""
    """The field that becomes the body; `*`: all fields that are not in the path; empty: they go into the query."""

    @property
    def field(self) -> str:
        return self.path[self.path.index("{") + 1 : self.path.index("}")]

    def fits(self, name: str) -> bool:
        pattern = re.escape(self.resource)
        for mark, parts in ((r"\*\*/", "(?:[^/]+/)*"), (r"\*\*", ".+"), (r"\*", "[^/]+")):
            pattern = pattern.replace(mark, parts)
        return re.fullmatch(pattern, name) is not None


def methods() -> dict[str, Method]:
    """By their full names: `/google.cloud.aiplatform.v1.JobService/CreateCustomJob`."""
    found = {f"/{service}/{name}": Method(*rule) for service, name, *rule in _MIXINS}
    for version in VERSIONS:
        messages = MessageClasses(version)
        package = f"/google.cloud.aiplatform.{version}."
        for kind, (service, collection) in _KINDS.items():
            jobs = _of_kind(messages, version, kind, collection)
            found |= {f"{package}{service}/{name}": method for name, method in jobs.items()}
        for service, rules in SERVICES.items():
            for name, rule in rules.items():
                found[f"{package}{service}/{name}"] = _of_rule(messages, version, name, rule)
    return found


_LOCATION = "projects/*/locations/*"
_KINDS = {
    "CustomJob": ("JobService", "customJobs"),
    "HyperparameterTuningJob": ("JobService", "hyperparameterTuningJobs"),
    "TrainingPipeline": ("PipelineService", "trainingPipelines"),
}


def _of_rule(messages: MessageClasses, version: str, name: str, rule: Rule) -> Method:
    kinds = {OPERATION: operations_pb2.Operation, EMPTY: empty_pb2.Empty}
    response = kinds.get(rule.response) or messages[rule.response]
    path = f"/{version}/{{{rule.field}}}{rule.suffix}"
    return Method(messages[f"{name}Request"], response, rule.verb, path, rule.resource, rule.body)


def _of_kind(messages: MessageClasses, version: str, kind: str, collection: str) -> dict[str, Method]:
    job, operation, empty = messages[kind], operations_pb2.Operation, empty_pb2.Empty
    resource_path, collection_path = f"/{version}/{{name}}", f"/{version}/{{parent}}/{collection}"
    name = f"{_LOCATION}/{collection}/*"
    body = kind[0].lower() + kind[1:]
    table: dict[str, tuple[Any, ...]] = {
        f"Create{kind}": (job, "POST", collection_path, _LOCATION, body),
        f"Get{kind}": (job, "GET", resource_path, name),
        f"List{kind}s": (messages[f"List{kind}sResponse"], "GET", collection_path, _LOCATION),
        f"Delete{kind}": (operation, "DELETE", resource_path, name),
        f"Cancel{kind}": (empty, "POST", resource_path + ":cancel", name, "*"),
    }
    return {rpc: Method(messages[f"{rpc}Request"], *rule) for rpc, rule in table.items()}


_OPERATION = f"{_LOCATION}/**/operations/*"
_LRO = "google.longrunning.Operations"
_LOCATIONS = "google.cloud.location.Locations"
_ops, _locs, _Empty = operations_pb2, locations_pb2, empty_pb2.Empty

# All versions of an API have the same messages for these, so one entry is enough.
_MIXINS: list[tuple[Any, ...]] = [
    (_LRO, "GetOperation", _ops.GetOperationRequest, _ops.Operation, "GET", "/v1/{name}", _OPERATION),
    (_LRO, "ListOperations", _ops.ListOperationsRequest, _ops.ListOperationsResponse, "GET",
     "/v1/{name}/operations", "projects/**"),
    (_LRO, "DeleteOperation", _ops.DeleteOperationRequest, _Empty, "DELETE", "/v1/{name}", _OPERATION),
    (_LRO, "CancelOperation", _ops.CancelOperationRequest, _Empty, "POST", "/v1/{name}:cancel", _OPERATION),
    (_LRO, "WaitOperation", _ops.WaitOperationRequest, _ops.Operation, "POST", "/v1/{name}:wait", _OPERATION),
    (_LOCATIONS, "GetLocation", _locs.GetLocationRequest, _locs.Location, "GET", "/v1/{name}", _LOCATION),
    (_LOCATIONS, "ListLocations", _locs.ListLocationsRequest, _locs.ListLocationsResponse, "GET",
     "/v1/{name}/locations", "projects/*"),
]  # fmt: skip
