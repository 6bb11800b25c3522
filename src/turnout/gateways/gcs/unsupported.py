"""What a client may ask for and this gateway does not have. To ignore it would be wrong, so it is refused."""

from typing import Any

from starlette.requests import Request

from turnout.errors import Unsupported

_NO_METAGENERATION = "there are no metagenerations; use ifGenerationMatch"
_NO_ACCESS_LISTS = "there are no access lists: a bucket belongs to a project"
_NO_KEYS = "objects are not encrypted with keys of clients"
_NO_ENCODING = "objects are served as they are stored"
_NO_VERSIONS = "only the newest version of an object is kept"

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
    "eventBasedHold": "nothing would keep the object",
    "temporaryHold": "nothing would keep the object",
    "retention": "nothing would keep the object",
}
_BUCKET_FIELDS = {
    "acl": _NO_ACCESS_LISTS,
    "defaultObjectAcl": _NO_ACCESS_LISTS,
    "encryption": _NO_KEYS,
    "lifecycle": "objects stay until somebody deletes them",
    "retentionPolicy": "nothing would keep the objects",
    "versioning": _NO_VERSIONS,
}


def check(request: Request) -> None:
    """The parameters and headers of any call. Raises Unsupported."""
    _refuse(_PARAMETERS, request.query_params)
    _refuse(_HEADERS, request.headers)
    if request.query_params.get("softDeleted", "").lower() == "true":
        raise Unsupported(f"softDeleted is not supported: {_NO_VERSIONS}", field="softDeleted")
    if request.method not in ("GET", "HEAD") and "ifGenerationNotMatch" in request.query_params:
        message = "ifGenerationNotMatch is supported for reading only; use ifGenerationMatch"
        raise Unsupported(message, field="ifGenerationNotMatch")


def check_object(document: dict[str, Any]) -> None:
    """The fields of an object in a request. Raises Unsupported."""
    _refuse(_OBJECT_FIELDS, document)


def check_bucket(document: dict[str, Any]) -> None:
    """The fields of a bucket in a request. Raises Unsupported."""
    _refuse(_BUCKET_FIELDS, document)


def _refuse(known: dict[str, str], given: Any) -> None:
    for name, why in known.items():
        if _is_set(given.get(name)):
            raise Unsupported(f"{name} is not supported: {why}", field=name)


def _is_set(value: Any) -> bool:
    """`{"enabled": false}` and `{"rule": []}` ask for what is the case anyway."""
    return any(map(_is_set, value.values())) if isinstance(value, dict) else bool(value)
