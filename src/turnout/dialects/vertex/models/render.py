"""Models as resources of Vertex."""

from typing import Any

from turnout.dialects.vertex.models.names import ModelName
from turnout.dialects.vertex.models.registry import StoredModel, Version
from turnout.dialects.vertex.protobuf.times import spell_time

EXPORT_FORMAT = "custom-trained"


def model(name: ModelName, stored: StoredModel, version: Version, *, versioned: bool) -> dict[str, Any]:
    """The resource. `versioned`: its name has the number of the version."""
    resource: dict[str, Any] = {
        "name": f"{name.model}@{version.id}" if versioned else name.model,
        "displayName": stored.display_name,
        "createTime": spell_time(stored.created),
        "updateTime": spell_time(stored.updated),
        "versionId": version.id,
        "versionAliases": list(version.aliases),
        "versionCreateTime": spell_time(version.created),
        "versionUpdateTime": spell_time(version.updated),
        "etag": etag(stored),
        "modelSourceInfo": {"sourceType": "CUSTOM"} | ({"copy": True} if version.copied_from else {}),
    } | version.fields
    if "artifactUri" in version.fields:
        resource["supportedExportFormats"] = [{"id": EXPORT_FORMAT, "exportableContents": ["ARTIFACT"]}]
    optional = {
        "description": stored.description,
        "versionDescription": version.description,
        "labels": stored.labels | version.labels,
        "trainingPipeline": version.pipeline,
        "originalModelInfo": {"model": version.copied_from} if version.copied_from else {},
    }
    return resource | {field: value for field, value in optional.items() if value}


def etag(stored: StoredModel) -> str:
    return f"{stored.updated:x}"
