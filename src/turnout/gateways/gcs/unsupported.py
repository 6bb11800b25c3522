"""Refuses features of GCS that this gateway does not have and that a client must not believe to be in effect."""

from typing import Any

from starlette.requests import Request

from turnout.errors import Unsupported

_NO_METAGENERATION = "there are no metagenerations; use ifGenerationMatch"
_NO_ACCESS_LISTS = "there are no access lists: a bucket belongs to a project"
_NO_KEYS = "objects are not encrypted with keys of clients"
_NO_ENCODING = "objects are served as they are stored"
_NO_VERSIONS = "only the newest version of an object is kept"
_NO_HOLDS = "objects can always be deleted"

_PARAMETERS = {
    "ifMetagenerationMatch": _NO_METAGENERATION,
    "ifMetagenerationNotMatch": _NO_METAGENERATION,
    "ifSourceMetagenerationMatch": _NO_METAGENERATION,
    "ifSourceMetagenerationNotMatch": _NO_METAGENERATION,
    "ifSourceGenerationNotMatch": "use ifSourceGenerationMatch",
    "predefinedAcl": _NO_ACCESS_LISTS,
    "destinationPredefinedAcl": _NO_ACCESS_LISTS,
    "predefinedDefaultObjectAcl": _NO_ACCESS_LISTS,
    "contentEncoding": _NO_ENCODING,
    "kmsKeyName": _NO_KEYS,
    "destinationKmsKeyName": _NO_KEYS,
}
_HEADERS = {
    "x-goog-encryption-algorithm": _NO_KEYS,
    "x-goog-encryption-key": _NO_KEYS,
    "x-goog-copy-source-encryption-algorithm": _NO_KEYS,
    "x-goog-encryption-kms-key-name": _NO_KEYS,
    "x-goog-acl": _NO_ACCESS_LISTS,
}
_OBJECT_FIELDS = {
    "acl": _NO_ACCESS_LISTS,
    "contentEncoding": _NO_ENCODING,
    "eventBasedHold": _NO_HOLDS,
    "temporaryHold": _NO_HOLDS,
    "retention": _NO_HOLDS,
}
_BUCKET_FIELDS = {
    "acl": _NO_ACCESS_LISTS,
    "defaultObjectAcl": _NO_ACCESS_LISTS,
    "encryption": _NO_KEYS,
    "lifecycle": "objects stay until somebody deletes them",
    "retentionPolicy": _NO_HOLDS,
    "versioning": _NO_VERSIONS,
}


def check(request: Request) -> None:
    """Checks the parameters and headers of any call. Raises Unsupported."""
    _refuse(_PARAMETERS, request.query_params)
    _refuse(_HEADERS, request.headers)
    if request.query_params.get("softDeleted", "").lower() == "true":
        raise Unsupported(f"softDeleted is not supported: {_NO_VERSIONS}", field="softDeleted")
    if request.method not in ("GET", "HEAD") and "ifGenerationNotMatch" in request.query_params:
        message = "ifGenerationNotMatch is supported for reading only; use ifGenerationMatch"
        raise Unsupported(message, field="ifGenerationNotMatch")


def check_object(document: dict[str, Any]) -> None:
    """Checks the fields of an object in a request. Raises Unsupported."""
    _refuse(_OBJECT_FIELDS, document)


def check_bucket(document: dict[str, Any]) -> None:
    """Checks the fields of a bucket in a request. Raises Unsupported."""
    _refuse(_BUCKET_FIELDS, document)


def _refuse(known: dict[str, str], given: Any) -> None:
    for name, why in known.items():
        if _is_set(given.get(name)):
            raise Unsupported(f"{name} is not supported: {why}", field=name)


def _is_set(value: Any) -> bool:
    """Whether the value turns a feature on. `{"enabled": false}` and `{"rule": []}` do not."""
    return any(map(_is_set, value.values())) if isinstance(value, dict) else bool(value)
