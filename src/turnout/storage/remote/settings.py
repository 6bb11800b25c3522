"""Which buckets are in a remote object store, and how it is reached."""

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from turnout.errors import Denied, Misconfigured
from turnout.storage.source import InBucket, without_account

REMOTE_SCHEMES = ("s3", "gs", "cos", "obs")
ENDPOINTS = {
    "cos": "https://cos.{region}.myqcloud.com",
    "obs": "https://obs.{region}.myhuaweicloud.com",
}
_GOOGLE_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


class RemoteSettings(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How to reach a bucket in a remote store. The usual environment variables supply what is not set."""

    url: str = ""
    """`s3://real-bucket/prefix`, or gs, cos, obs. For a whole scheme `s3://`: the bucket keeps its own name."""
    endpoint: str = ""
    region: str = ""
    key: str = ""
    """The access key; for gs the path of a service account's file."""
    secret: str = ""
    """The secret key; for gs the content of that file."""
    token: str = ""
    """A session token; for gs a bearer token."""
    virtual_hosted: bool | None = None
    """Whether the bucket is part of the host's name. Unset: yes for endpoints that are known to require it."""
    anonymous: bool = False
    allow_http: bool = False
    """Allows unencrypted transfers to other machines. Loopback addresses are always allowed."""

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    @property
    def bucket(self) -> str:
        return self.url.partition("://")[2].partition("/")[0]

    @property
    def prefix(self) -> str:
        return self.url.partition("://")[2].partition("/")[2].strip("/")

    @property
    def unencrypted(self) -> bool:
        return self.endpoint.startswith("http://")

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can reach the store."""
        host = urlsplit(self.endpoint).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def __repr__(self) -> str:
        """Without secrets, because it may be logged."""
        return f"RemoteSettings({self.url!r}, endpoint={self.endpoint!r})"


class RemotePath(NamedTuple):
    """A prefix or an object in a remote store."""

    settings: RemoteSettings
    """With credentials."""
    prefix: str
    url: str
    """As the user knows it, for messages."""


class RemoteBuckets(NamedTuple):
    """The buckets that are not embedded."""

    buckets: Mapping[str, RemoteSettings] = {}
    schemes: Mapping[str, RemoteSettings] = {}
    """For all buckets of `cos`, `obs`, `gs` or `s3` that `buckets` does not name."""
    private: Mapping[str, str] = {}
    """Bucket, or scheme with `://` → the only project that may use it."""
    environment: Mapping[str, str] = {}
    """Supplies credentials that are not in the settings."""

    def find(self, source: str, place: InBucket, project: str) -> RemotePath | None:
        """None for an embedded bucket. Raises Denied for another project's bucket, and Misconfigured."""
        settings = self.settings(place.scheme, place.bucket)
        if settings is None:
            return None
        if not self.is_open_to(project, place.scheme, place.bucket):
            raise Denied(f"{source!r}: the bucket {place.bucket} belongs to another project")
        return RemotePath(with_credentials(settings, self.environment), "/".join(place.parts), source)

    def is_open_to(self, project: str, scheme: str, bucket: str) -> bool:
        return project == self.private.get(self._known(bucket), self.private.get(f"{scheme}://", project))

    def settings(self, scheme: str, bucket: str) -> RemoteSettings | None:
        if self._known(bucket) in self.buckets:
            return self.buckets[self._known(bucket)]
        if scheme not in self.schemes:
            return None
        settings = self.schemes[scheme]
        return msgspec.structs.replace(settings, url=f"{settings.scheme or scheme}://{bucket}")

    def _known(self, bucket: str) -> str:
        """The bucket's name in the settings, which may omit the number of the Tencent account."""
        return bucket if bucket in self.buckets else without_account(bucket)


def check(settings: RemoteSettings, where: str) -> None:
    """Raises Misconfigured and names the setting. `where`: the heading of its table in the settings file."""
    if settings.scheme not in REMOTE_SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in REMOTE_SCHEMES)
        raise Misconfigured(f"{where} url: {settings.url!r} must begin with one of {known}")
    if bool(settings.key) != bool(settings.secret) and settings.scheme != "gs":
        raise Misconfigured(f"{where}: set both key and secret; one of them is missing")
    if settings.scheme in ENDPOINTS and not (settings.endpoint or settings.region):
        raise Misconfigured(f"{where}: {settings.scheme}:// needs an endpoint or a region")
    if settings.endpoint and urlsplit(settings.endpoint).scheme not in ("http", "https"):
        raise Misconfigured(f"{where} endpoint: {settings.endpoint!r} must begin with https:// or http://")
    if settings.unencrypted and not settings.allow_http and not _is_loopback(settings):
        raise Misconfigured(
            f"{where} endpoint: data would go to {settings.endpoint} unencrypted; use https://, or set"
            " allow_http = true"
        )


def with_credentials(settings: RemoteSettings, environment: Mapping[str, str]) -> RemoteSettings:
    """Includes the content of the credentials file, which the process that opens the store may not be able to read."""
    if settings.scheme != "gs" or settings.secret or settings.token or settings.anonymous:
        return settings
    path = settings.key or environment.get(_GOOGLE_FILE, "")
    if not path:
        return settings
    try:
        return msgspec.structs.replace(settings, secret=Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(
            f"{settings.url}: the service account's file {path} cannot be read: {error}"
        ) from None


def _is_loopback(settings: RemoteSettings) -> bool:
    host = urlsplit(settings.endpoint).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
