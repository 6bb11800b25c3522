"""The calls of the services that have more than jobs, as a table."""

from typing import NamedTuple

OPERATION = "Operation"
EMPTY = "Empty"
"""Responses that are not messages of Vertex."""

_LOCATION = "projects/*/locations/*"
_MODEL = f"{_LOCATION}/models/*"
_STORE = f"{_LOCATION}/metadataStores/*"
_BOARD = f"{_LOCATION}/tensorboards/*"
_EXPERIMENT = f"{_BOARD}/experiments/*"
_RUN = f"{_EXPERIMENT}/runs/*"
_SERIES = f"{_RUN}/timeSeries/*"
_CLUSTER = f"{_LOCATION}/persistentResources/*"


class Rule(NamedTuple):
    response: str
    verb: str
    field: str
    """The field of the request that is in the address."""
    resource: str
    """The form of that field."""
    suffix: str = ""
    """What follows it in the address."""
    body: str = ""


def _resource(
    kind: str, collection: str, parent: str, plural: str = "", created: str = "", updated: str = ""
) -> dict[str, Rule]:
    """Create, get, list, update and delete. `created` and `updated`: what those calls return, if not the resource."""
    body = _snake(kind)
    name = f"{parent}/{collection}/*"
    return {
        f"Create{kind}": Rule(created or kind, "POST", "parent", parent, f"/{collection}", body),
        f"Get{kind}": Rule(kind, "GET", "name", name),
        f"List{plural or kind + 's'}": Rule(
            f"List{plural or kind + 's'}Response", "GET", "parent", parent, f"/{collection}"
        ),
        f"Update{kind}": Rule(updated or kind, "PATCH", f"{body}.name", name, "", body),
        f"Delete{kind}": Rule(OPERATION, "DELETE", "name", name),
    }


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


_models = _resource("Model", "models", _LOCATION)
_models.pop("CreateModel")
_stores = _resource("MetadataStore", "metadataStores", _LOCATION, created=OPERATION)
_stores.pop("UpdateMetadataStore")
_clusters = _resource("PersistentResource", "persistentResources", _LOCATION, created=OPERATION)
_clusters.pop("UpdatePersistentResource")

SERVICES: dict[str, dict[str, Rule]] = {
    "ModelService": _models
    | {
        "UploadModel": Rule(OPERATION, "POST", "parent", _LOCATION, "/models:upload", "*"),
        "CopyModel": Rule(OPERATION, "POST", "parent", _LOCATION, "/models:copy", "*"),
        "ExportModel": Rule(OPERATION, "POST", "name", _MODEL, ":export", "*"),
        "ListModelVersions": Rule("ListModelVersionsResponse", "GET", "name", _MODEL, ":listVersions"),
        "DeleteModelVersion": Rule(OPERATION, "DELETE", "name", _MODEL, ":deleteVersion"),
        "MergeVersionAliases": Rule("Model", "POST", "name", _MODEL, ":mergeVersionAliases", "*"),
    },
    "MetadataService": _stores
    | _resource("Context", "contexts", _STORE)
    | _resource("Execution", "executions", _STORE)
    | _resource("Artifact", "artifacts", _STORE)
    | {
        "AddContextChildren": Rule(
            "AddContextChildrenResponse", "POST", "context", f"{_STORE}/contexts/*", ":addContextChildren", "*"
        ),
        "RemoveContextChildren": Rule(
            "RemoveContextChildrenResponse", "POST", "context", f"{_STORE}/contexts/*", ":removeContextChildren", "*"
        ),
        "AddContextArtifactsAndExecutions": Rule(
            "AddContextArtifactsAndExecutionsResponse", "POST", "context", f"{_STORE}/contexts/*",
            ":addContextArtifactsAndExecutions", "*",
        ),
        "QueryContextLineageSubgraph": Rule(
            "LineageSubgraph", "GET", "context", f"{_STORE}/contexts/*", ":queryContextLineageSubgraph"
        ),
        "AddExecutionEvents": Rule(
            "AddExecutionEventsResponse", "POST", "execution", f"{_STORE}/executions/*", ":addExecutionEvents", "*"
        ),
        "QueryExecutionInputsAndOutputs": Rule(
            "LineageSubgraph", "GET", "execution", f"{_STORE}/executions/*", ":queryExecutionInputsAndOutputs"
        ),
        "QueryArtifactLineageSubgraph": Rule(
            "LineageSubgraph", "GET", "artifact", f"{_STORE}/artifacts/*", ":queryArtifactLineageSubgraph"
        ),
    },
    "TensorboardService": _resource("Tensorboard", "tensorboards", _LOCATION, created=OPERATION, updated=OPERATION)
    | _resource("TensorboardExperiment", "experiments", _BOARD)
    | _resource("TensorboardRun", "runs", _EXPERIMENT)
    | _resource("TensorboardTimeSeries", "timeSeries", _RUN, plural="TensorboardTimeSeries")
    | {
        "BatchCreateTensorboardRuns": Rule(
            "BatchCreateTensorboardRunsResponse", "POST", "parent", _EXPERIMENT, "/runs:batchCreate", "*"
        ),
        "BatchCreateTensorboardTimeSeries": Rule(
            "BatchCreateTensorboardTimeSeriesResponse", "POST", "parent", _EXPERIMENT, ":batchCreate", "*"
        ),
        "WriteTensorboardExperimentData": Rule(
            "WriteTensorboardExperimentDataResponse", "POST", "tensorboard_experiment", _EXPERIMENT, ":write", "*"
        ),
        "WriteTensorboardRunData": Rule(
            "WriteTensorboardRunDataResponse", "POST", "tensorboard_run", _RUN, ":write", "*"
        ),
        "BatchReadTensorboardTimeSeriesData": Rule(
            "BatchReadTensorboardTimeSeriesDataResponse", "GET", "tensorboard", _BOARD, ":batchRead"
        ),
        "ReadTensorboardTimeSeriesData": Rule(
            "ReadTensorboardTimeSeriesDataResponse", "GET", "tensorboard_time_series", _SERIES, ":read"
        ),
        "ExportTensorboardTimeSeriesData": Rule(
            "ExportTensorboardTimeSeriesDataResponse", "POST", "tensorboard_time_series", _SERIES,
            ":exportTensorboardTimeSeries", "*",
        ),
    },
    "PersistentResourceService": _clusters,
}  # fmt: skip
"""By service and method."""
