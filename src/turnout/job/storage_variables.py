"""The variables by which the clouds' storage clients find the buckets of a job's project, with credentials of the job.

A variable of the user always wins. Those that belong together go together: a program with an AWS key of its own must
not send it to the address here, nor the job's key to an address of its own.
"""

from collections.abc import Collection, Container, Iterable
from typing import NamedTuple

REGION = "us-east-1"
"""For clients that want one. The gateways accept any."""
METADATA_ADDRESS = "169.254.169.254"
"""Where the clouds have their metadata server, and a gang's own network has ours."""
METADATA_NAMES = ("metadata.google.internal", "metadata")


class StorageAccess(NamedTuple):
    endpoint: str
    """The URL of the gateways, without a path."""
    metadata: str
    """The address of the metadata server, without a scheme; empty: there is none."""
    project: str
    key_id: str
    secret: str
    session: str


class _Group(NamedTuple):
    names: tuple[str, ...]
    also: tuple[str, ...] = ()
    """Other variables with which a program chooses credentials or an address of its own."""


_AWS_KEY = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_AWS_ADDRESS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP")
_AWS_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_AWS_ALSO = (
    "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_ENDPOINT", "AWS_SECURITY_TOKEN",
)  # fmt: skip
_GOOGLE = (
    "API_ENDPOINT_OVERRIDE", "FSSPEC_GCS_ENDPOINT_URL", "CLOUD_STORAGE_EMULATOR_ENDPOINT",
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT",
)  # fmt: skip
_GOOGLE_ALSO = ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST", "FSSPEC_GCS_TOKEN")
_GCSFS = ("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT",)
"""With it, gcsfs asks by gRPC whether a bucket is zonal or hierarchical, and waits for minutes."""
_GOOGLE_PROJECT = ("GOOGLE_CLOUD_PROJECT",)
_HUAWEI = (
    "S3_ENDPOINT", "S3_USE_HTTPS", "S3_VERIFY_SSL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SECURITY_TOKEN",
    "OBS_ACCESS_KEY_ID", "OBS_SECRET_ACCESS_KEY", "OBS_SECURITY_TOKEN", "OBS_ENDPOINT",
)  # fmt: skip
_TENCENT = (
    "TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY", "TENCENTCLOUD_TOKEN", "TENCENTCLOUD_REGION", "COS_ENDPOINT",
)  # fmt: skip

_GROUPS = (
    _Group((*_AWS_KEY, *_AWS_ADDRESS), _AWS_ALSO),
    _Group(_AWS_REGION, (*_AWS_KEY, *_AWS_ADDRESS, *_AWS_ALSO)),
    _Group(_GOOGLE, _GOOGLE_ALSO),
    _Group(_GCSFS, (*_GOOGLE, *_GOOGLE_ALSO)),
    _Group(_GOOGLE_PROJECT),
    _Group(_HUAWEI),
    _Group(_TENCENT, ("TENCENTCLOUD_SECRETID", "TENCENTCLOUD_SECRETKEY")),
)


_DECISIVE = frozenset(name for group in _GROUPS for name in (*group.names, *group.also))
"""A program that has none of them gets all variables."""


def variables(access: StorageAccess) -> dict[str, str]:
    """What a program gets that sets none of these itself."""
    secure = access.endpoint.startswith("https:")
    flag = "1" if secure else "0"
    key = (access.key_id, access.secret, access.session)
    found = dict(zip(_AWS_KEY, key, strict=True))
    found |= dict(zip(_AWS_ADDRESS, (access.endpoint, access.endpoint, "true"), strict=True))
    found |= dict.fromkeys(_AWS_REGION, REGION)
    found |= dict(zip(_HUAWEI, (access.endpoint, flag, flag, *key, *key, access.endpoint), strict=True))
    found |= dict(zip(_TENCENT, (*key, "ap-guangzhou", access.endpoint.partition("://")[2]), strict=True))
    found |= {"GOOGLE_CLOUD_PROJECT": access.project}
    if access.metadata:
        google = (*(access.endpoint,) * 3, f"{access.endpoint}/storage/v1/")
        found |= dict(zip(_GOOGLE, (*google, *(access.metadata,) * 3), strict=True))
        found |= dict.fromkeys(_GCSFS, "false")
    return found


def withheld(own: Collection[str]) -> list[str]:
    """The names that a program does not get, because it has variables of its own for the same."""
    if _DECISIVE.isdisjoint(own):
        return []
    return [name for group in _GROUPS for name in _withheld(group, own)]


def _withheld(group: _Group, own: Container[str]) -> Iterable[str]:
    return group.names if any(name in own for name in (*group.names, *group.also)) else ()
