"""Names of models: `projects/p/locations/l/models/123@2`."""

import re
from typing import NamedTuple

from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.protobuf.field_path import quoted
from turnout.dialects.vertex.resource_names import project_number
from turnout.errors import Invalid, NotFound

_NAME = re.compile(r"projects/([^/]+)/locations/([^/]+)/models/([^/@]+)(?:@([^/@]*))?")
_ID = re.compile(r"[a-z0-9_-]{1,63}")


class ModelName(NamedTuple):
    project: str
    location: str
    id: str
    version: str = ""
    """A number or an alias; empty: the default version."""

    @property
    def model(self) -> str:
        return f"projects/{self.project}/locations/{self.location}/models/{self.id}"

    @property
    def asset(self) -> str:
        return f"{self.location}/{self.id}"


def of_call(call: Call) -> ModelName:
    model, _, version = call.resource[1].partition("@")
    return ModelName(call.caller.project, call.location, model[:100], version)


def parse(text: str, call: Call, field: str) -> ModelName:
    """A name in a request. Raises Invalid, and NotFound for a model of another project."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise Invalid(
            f"{field}: {quoted(text)} must have the form projects/{{project}}/locations/{{location}}/models/{{model}}.",
            field=field,
        )
    project = call.caller.project
    if match[1] not in (project, project_number(project)):
        raise NotFound(f"{field}: there is no model {text[:200]} in the project {project}.", field=field)
    return ModelName(project, match[2], match[3][:100], match[4] or "")


def check_id(model_id: str, field: str) -> None:
    if model_id and (not _ID.fullmatch(model_id) or model_id[0] in "0123456789-"):
        raise Invalid(
            f"{field}: {quoted(model_id)} must begin with a lower-case letter or '_', have lower-case letters, digits,"
            " '_' and '-', and at most 63 characters.",
            field=field,
        )
