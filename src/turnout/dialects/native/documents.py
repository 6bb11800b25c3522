"""Documents of the clouds' APIs: recognised by their shape, given another name, changed field by field."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from turnout.errors import Invalid

Document = dict[str, Any]


class _Shape(NamedTuple):
    api: str
    needs: tuple[str, ...]
    """A document with one of these fields is of this API."""
    name: tuple[str, ...]
    """The path of the job's name."""


_SHAPES = (
    _Shape(
        "vertex",
        (
            "jobSpec",
            "job_spec",
            "studySpec",
            "study_spec",
            "workerPoolSpecs",
            "worker_pool_specs",
            "trainingTaskDefinition",
            "training_task_definition",
        ),
        ("displayName",),
    ),
    _Shape("modelarts", ("metadata", "algorithm", "tasks"), ("metadata", "name")),
    _Shape("tia", ("RuntimeVersion", "Command", "PackageDir", "ScaleTier", "Cluster"), ("Name",)),
)
_NAME_PATHS = {shape.api: shape.name for shape in _SHAPES}
_POOLS = ("workerPoolSpecs", "worker_pool_specs")
_DEFAULT_NAME = "custom-job"
_DEEPEST = 100


def decode(body: bytes) -> Document:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the body is not JSON: {str(error) or 'it is nested too deeply'}") from None
    if not isinstance(document, dict):
        raise Invalid("the body must be one JSON object: a job as one of the APIs describes it")
    return cast(Document, document)


def recognize(document: Document) -> tuple[str, Document]:
    """The API of a document, and the document as a request of that API has it. Raises Invalid.

    A CustomJobSpec, which `gcloud ai custom-jobs create --config` reads, becomes a CustomJob.
    """
    for shape in _SHAPES:
        if not document.keys().isdisjoint(shape.needs):
            if not document.keys().isdisjoint(_POOLS):
                return shape.api, {"displayName": _DEFAULT_NAME, "jobSpec": document}
            return shape.api, document
    raise Invalid(
        "the document belongs to no API of this service: a Vertex CustomJob has jobSpec, a HyperparameterTuningJob "
        "studySpec, a ModelArts training job metadata and algorithm, a TI-A CreateJob request Name and RuntimeVersion"
    )


def renamed(api: str, document: Document, name: str) -> Document:
    return changed(document, {".".join(_NAME_PATHS[api]): name})


def name_of(api: str, document: Document) -> str:
    """Of a document that has a name."""
    found: Any = document
    for part in _NAME_PATHS[api]:
        found = found[part]
    return found


def changed(document: Document, changes: Mapping[str, Any]) -> Document:
    """A copy with other values at these paths, such as `jobSpec.workerPoolSpecs.0.replicaCount`; None removes a field.

    Raises Invalid, which names the path.
    """
    copy: Document = msgspec.json.decode(msgspec.json.encode(document))
    for path, value in changes.items():
        if path.count(".") > _DEEPEST:
            raise Invalid(f"changes: {path[:100]}: has more than {_DEEPEST} dots", field="changes")
        *parents, last = path.split(".")
        holder: Any = copy
        for number, part in enumerate(parents):
            holder = _step(holder, part, path, ".".join(parents[:number]))
        _put(holder, last, value, path)
    return copy


def _step(holder: Any, part: str, path: str, so_far: str) -> Any:
    if isinstance(holder, dict):
        return cast(Document, holder).setdefault(part, {})
    return cast(list[Any], holder)[_index(holder, part, path, so_far)]


def _put(holder: Any, last: str, value: Any, path: str) -> None:
    if not isinstance(holder, dict):
        cast(list[Any], holder)[_index(holder, last, path, path.rpartition(".")[0])] = value
    elif value is None:
        cast(Document, holder).pop(last, None)
    else:
        holder[last] = value


def _index(holder: Any, part: str, path: str, so_far: str) -> int:
    if not isinstance(holder, list):
        raise Invalid(f"changes: {path}: {so_far} has no fields", field=path)
    count = len(cast(list[Any], holder))
    if not (part.isascii() and part.isdecimal() and len(part) < 10 and int(part) < count):
        raise Invalid(f"changes: {path}: {so_far} is a list with {count} items, counted from 0", field=path)
    return int(part)
