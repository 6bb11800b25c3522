"""An update of a model or of one version, as `updateMask` selects it."""

from collections.abc import Callable

from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.models import registry, render, validate
from turnout.dialects.vertex.models.names import ModelName
from turnout.dialects.vertex.models.registry import StoredModel
from turnout.dialects.vertex.models.wire import Model
from turnout.dialects.vertex.protobuf import codec, field_mask
from turnout.errors import Invalid, Unsupported, WrongState

_OF_MODEL = ("displayName", "description")
_OF_VERSION = ("versionDescription",)
_OF_BOTH = ("labels",)


def of_request(call: Call, name: ModelName, now: int) -> Callable[[StoredModel], None]:
    """Raises Invalid for a mask that is empty or selects what cannot be changed."""
    model, path = codec.decode(call.body, Model, "model")
    mask = field_mask.parse(call.query.get("updateMask", ""), Model)
    if not mask:
        raise Invalid(
            "updateMask is required: the fields to change, such as displayName.", field="updateMask"
        )
    _check_mask(list(mask), bool(name.version))
    if "displayName" in mask or "labels" in mask:
        checked = Model(
            display_name=model.display_name if "displayName" in mask else "x", labels=model.labels
        )
        validate.model(checked, path, call.location)

    def change(stored: StoredModel) -> None:
        if model.etag and model.etag != render.etag(stored):
            error = WrongState(f"etag: the Model {name.model} was changed meanwhile.", field="etag")
            error.code = "ABORTED"
            raise error
        version = registry.version_of(stored, name.version, name.model)
        if "displayName" in mask:
            stored.display_name = model.display_name
        if "description" in mask:
            stored.description = model.description
        if "versionDescription" in mask:
            version.description = model.version_description
        if "labels" in mask and name.version:
            version.labels = model.labels
        elif "labels" in mask:
            stored.labels = model.labels
        if name.version:
            version.updated = now
        stored.updated = now

    return change


def _check_mask(fields: list[str], of_version: bool) -> None:
    allowed = (*(_OF_VERSION if of_version else _OF_MODEL), *_OF_BOTH)
    for name in fields:
        if name in allowed:
            continue
        if name in (*_OF_MODEL, *_OF_VERSION):
            other = "a model without a version" if of_version else "a version, models/{model}@{version}"
            raise WrongState(f"updateMask: {name} belongs to {other} in the name.", field="updateMask")
        raise Unsupported(
            f"updateMask: {name} cannot be changed; an update changes {', '.join(allowed)}.",
            field="updateMask",
        )
