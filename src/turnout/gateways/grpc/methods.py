"""Every method there is, and the REST call that it stands for."""

import re
from typing import Any, NamedTuple

from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from turnout.doors.grpc.messages import VERSIONS, Messages


class Method(NamedTuple):
    request: type[Message]
    response: type[Message]
    verb: str
    path: str
    """`/v1/{parent}/customJobs`: the one field of the request that it names goes there."""
    resource: str
    """What that field looks like; `*` is a part, `**` are some, `**/` perhaps some."""
    body: str = ""
    """The field that is the body; `*`: whatever is not in the path; empty: none, and the rest goes into the query."""

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
        messages = Messages(version)
        service = f"/google.cloud.aiplatform.{version}.JobService/"
        for kind, collection in _KINDS.items():
            jobs = _of_kind(messages, version, kind, collection)
            found |= {service + name: method for name, method in jobs.items()}
    return found


_PLACE = "projects/*/locations/*"
_KINDS = {"CustomJob": "customJobs", "HyperparameterTuningJob": "hyperparameterTuningJobs"}


def _of_kind(messages: Messages, version: str, kind: str, collection: str) -> dict[str, Method]:
    job, operation, empty = messages[kind], operations_pb2.Operation, empty_pb2.Empty
    one, every = f"/{version}/{{name}}", f"/{version}/{{parent}}/{collection}"
    name = f"{_PLACE}/{collection}/*"
    body = kind[0].lower() + kind[1:]
    table: dict[str, tuple[Any, ...]] = {
        f"Create{kind}": (job, "POST", every, _PLACE, body),
        f"Get{kind}": (job, "GET", one, name),
        f"List{kind}s": (messages[f"List{kind}sResponse"], "GET", every, _PLACE),
        f"Delete{kind}": (operation, "DELETE", one, name),
        f"Cancel{kind}": (empty, "POST", one + ":cancel", name, "*"),
    }
    return {rpc: Method(messages[f"{rpc}Request"], *rule) for rpc, rule in table.items()}


_OPERATION = f"{_PLACE}/**/operations/*"
_LRO = "google.longrunning.Operations"
_LOCATIONS = "google.cloud.location.Locations"
_ops, _places, _Empty = operations_pb2, locations_pb2, empty_pb2.Empty

# Their messages are the same for all versions of an API, and so are our answers.
_MIXINS: list[tuple[Any, ...]] = [
    (_LRO, "GetOperation", _ops.GetOperationRequest, _ops.Operation, "GET", "/v1/{name}", _OPERATION),
    (_LRO, "ListOperations", _ops.ListOperationsRequest, _ops.ListOperationsResponse, "GET",
     "/v1/{name}/operations", "projects/**"),
    (_LRO, "DeleteOperation", _ops.DeleteOperationRequest, _Empty, "DELETE", "/v1/{name}", _OPERATION),
    (_LRO, "CancelOperation", _ops.CancelOperationRequest, _Empty, "POST", "/v1/{name}:cancel", _OPERATION),
    (_LRO, "WaitOperation", _ops.WaitOperationRequest, _ops.Operation, "POST", "/v1/{name}:wait", _OPERATION),
    (_LOCATIONS, "GetLocation", _places.GetLocationRequest, _places.Location, "GET", "/v1/{name}", _PLACE),
    (_LOCATIONS, "ListLocations", _places.ListLocationsRequest, _places.ListLocationsResponse, "GET",
     "/v1/{name}/locations", "projects/*"),
]  # fmt: skip
