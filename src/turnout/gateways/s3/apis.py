"""The storage APIs that share the port: S3, Huawei's OBS and Tencent's COS.

They have the same operations, and different signatures and names. The gateway works with the names of S3: `inward`
translates a request, and S3Call the response. A bucket may be in the path or in the host.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from turnout.access import cos_signature, sigv2
from turnout.access.sigv4 import HttpRequest
from turnout.access.tencent_account import app_id
from turnout.storage.source import without_account

S3_PREFIX = "x-amz-"


class StorageApi(NamedTuple):
    name: str
    scheme: str
    """The scheme of its URLs, which leads to its buckets."""
    prefix: str
    """The prefix of its own headers."""
    namespace: str
    """The namespace of its documents."""
    min_part: int
    """The least size of each part of an upload, except the last, in bytes."""


S3 = StorageApi("S3", "s3", S3_PREFIX, "http://s3.amazonaws.com/doc/2006-03-01/", 5 << 20)
OBS = StorageApi("OBS", "obs", "x-obs-", "http://obs.myhwclouds.com/doc/2015-06-30/", 100 << 10)
OBS_AS_S3 = S3._replace(name="OBS", scheme="obs", min_part=OBS.min_part)
"""Huawei's clients with the signatures and names of S3, which OBS knows too."""
COS = StorageApi("COS", "cos", "x-cos-", "", 1 << 20)

_LABEL = r"[a-z0-9-]+"
_HOSTS = (
    (COS, re.compile(rf"(?:(.+)\.)?cos(?:-internal)?\.{_LABEL}\.(?:myqcloud\.com|tencentcos\.cn)")),
    (COS, re.compile(r"service\.cos\.(?:myqcloud\.com|tencentcos\.cn)()")),
    (OBS, re.compile(rf"(?:(.+)\.)?obs\.{_LABEL}\.myhuaweicloud\.com")),
    (S3, re.compile(rf"(?:(.+)\.)?s3(?:[.-]{_LABEL})?\.amazonaws\.com")),
)


class Addressed(NamedTuple):
    api: StorageApi
    bucket: str
    """The bucket, if the host names it."""


def addressed(request: HttpRequest, domains: Sequence[str]) -> Addressed:
    """`domains`: names of this port in the settings; `<bucket>.<domain>` is the host of a bucket."""
    by_host, bucket = _by_host(request, domains)
    api = _by_signature(request) or by_host or _by_headers(request)
    if api is S3 and (by_host is OBS or request.header("user-agent").startswith(("obs-sdk", "obsutil"))):
        api = OBS_AS_S3
    return Addressed(api, bucket)


def inward(api: StorageApi, request: HttpRequest) -> HttpRequest:
    """The request with S3's header names."""
    if api.prefix == S3_PREFIX:
        return request
    return request._replace(
        headers=[
            (_renamed(name, api.prefix, S3_PREFIX), _value(api, name, value))
            for name, value in request.headers
        ]
    )


def bucket_name(api: StorageApi, bucket: str, project: str) -> str:
    """The name of a bucket in lists. COS adds the number of the account, and its clients expect it."""
    if api is COS and without_account(bucket) == bucket:
        return f"{bucket}-{app_id(project)}"
    return bucket


def outward(api: StorageApi, headers: dict[str, str]) -> dict[str, str]:
    """The headers of a response with the names of the API."""
    return {_renamed(name, S3_PREFIX, api.prefix): value for name, value in headers.items()}


def _renamed(name: str, old: str, new: str) -> str:
    return new + name.removeprefix(old) if name.startswith(old) else name


def _value(api: StorageApi, name: str, value: str) -> str:
    if api is COS and name == "x-cos-copy-source":
        host, slash, key = value.removeprefix("/").partition("/")
        return f"{_by_host_name(unquote(host), [])[1] or host}{slash}{key}"
    if api is COS and name == "x-cos-metadata-directive":
        return {"replaced": "REPLACE"}.get(value.lower(), value)
    return value


def _by_signature(request: HttpRequest) -> StorageApi | None:
    if cos_signature.is_signed(request):
        return COS
    word = request.header("authorization").strip().partition(" ")[0]
    if word == sigv2.OBS.authorization or sigv2.is_presigned(sigv2.OBS, request):
        return OBS
    if word or sigv2.is_presigned(sigv2.AWS, request) or request.param("X-Amz-Algorithm") is not None:
        return S3
    return None


def _by_host(request: HttpRequest, domains: Sequence[str]) -> tuple[StorageApi | None, str]:
    return _by_host_name(request.header("host").rpartition("@")[2].partition(":")[0].lower(), domains)


def _by_host_name(host: str, domains: Sequence[str]) -> tuple[StorageApi | None, str]:
    for domain in (*domains, "localhost"):
        if host.endswith(f".{domain}"):
            return None, host.removesuffix(f".{domain}")
    for api, pattern in _HOSTS:
        found = pattern.fullmatch(host)
        if found:
            return api, found[1] or ""
    return None, ""


def _by_headers(request: HttpRequest) -> StorageApi:
    if request.param("apiversion") is not None:
        return OBS
    for api in (OBS, COS):
        if any(name.startswith(api.prefix) for name, _ in request.headers):
            return api
    return S3
