"""Buckets that live in a real object store, reached by obstore: from the settings to a store.

The store's own words stay out of messages: they can be pages long. `remote_trouble` says it in ours.
"""

from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from turnout.errors import Misconfigured

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSStore, RetryConfig, S3Credential, S3Store

    Store = S3Store | GCSStore

REMOTE_SCHEMES = ("s3", "gs", "cos", "obs")
PATIENCE = 120.0
"""Seconds that an ailing store is asked again and again before it is given up."""

_CONNECT = timedelta(seconds=10)
_SILENCE = timedelta(minutes=2)
"""Without a byte; also the longest that one part of an upload may take."""
_REQUEST = timedelta(minutes=15)
_ENDPOINTS = {
    "cos": "https://cos.{region}.myqcloud.com",
    "obs": "https://obs.{region}.myhuaweicloud.com",
}
_VIRTUAL_ONLY = (".myqcloud.com", ".myhuaweicloud.com")
_GOOGLE_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


class Backing(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where a bucket really is. What is not said comes from the usual environment variables."""

    url: str = ""
    """`s3://real-bucket/prefix`, or gs, cos, obs; for a whole scheme: `s3://`, and each bucket has its own name."""
    endpoint: str = ""
    region: str = ""
    key: str = ""
    """The access key; for gs: the path of a service account's file."""
    secret: str = ""
    """The secret key; for gs: what such a file holds."""
    token: str = ""
    """A session's token; for gs: a bearer token."""
    virtual_hosted: bool | None = None
    """The bucket is part of the host's name. Unset: where the endpoint is known to want it."""
    anonymous: bool = False
    allow_http: bool = False
    """Data may travel unencrypted; to this machine itself it always may."""

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    @property
    def bucket(self) -> str:
        return self.url.partition("://")[2].partition("/")[0]

    @property
    def prefix(self) -> str:
        return self.url.partition("://")[2].partition("/")[2].strip("/")

    def __repr__(self) -> str:
        """Without anything secret: it may end up in a log."""
        return f"Backing({self.url!r}, endpoint={self.endpoint!r})"


def choose(
    buckets: Mapping[str, Backing], schemes: Mapping[str, Backing], scheme: str, bucket: str
) -> Backing | None:
    """Where this bucket really is; None: it is an embedded one."""
    if bucket in buckets:
        return buckets[bucket]
    if scheme not in schemes:
        return None
    backing = schemes[scheme]
    real = backing.scheme or scheme
    return msgspec.structs.replace(backing, url=f"{real}://{bucket}")


def check(backing: Backing, where: str) -> None:
    """Raises Misconfigured, naming the setting. `where`: the table's heading, as it stands in the file."""
    if backing.scheme not in REMOTE_SCHEMES:
        known = ", ".join(f"{one}://" for one in REMOTE_SCHEMES)
        raise Misconfigured(f"{where} url: {backing.url!r} must begin with one of {known}")
    if bool(backing.key) != bool(backing.secret) and backing.scheme != "gs":
        raise Misconfigured(f"{where}: key and secret go together; one of them is missing")
    if backing.scheme in _ENDPOINTS and not (backing.endpoint or backing.region):
        raise Misconfigured(f"{where}: {backing.scheme}:// needs an endpoint, or a region to find it by")
    if backing.endpoint and urlsplit(backing.endpoint).scheme not in ("http", "https"):
        raise Misconfigured(f"{where} endpoint: {backing.endpoint!r} must begin with https:// or http://")
    if _plain(backing) and not backing.allow_http and not _loopback(backing):
        raise Misconfigured(
            f"{where} endpoint: {backing.endpoint} would carry data unencrypted; use https://, or set allow_http = true"
        )


def carried(backing: Backing, environment: Mapping[str, str]) -> Backing:
    """With the content of the files that it names: who opens the store may not be able to read them."""
    if backing.scheme != "gs" or backing.secret or backing.token or backing.anonymous:
        return backing
    path = backing.key or environment.get(_GOOGLE_FILE, "")
    if not path:
        return backing
    try:
        return msgspec.structs.replace(backing, secret=Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(
            f"{backing.url}: the service account's file {path} cannot be read: {error}"
        ) from None


def open_store(backing: Backing, patience: float = PATIENCE) -> "Store":
    """Asks nobody yet. Raises Misconfigured."""
    check(backing, f"the backing of {backing.url!r}:")
    if not backing.bucket:
        raise Misconfigured(f"{backing.url!r} names no bucket")
    client: ClientConfig = {
        "allow_http": _plain(backing),
        "connect_timeout": _CONNECT,
        "read_timeout": _SILENCE,
        "timeout": _REQUEST,
    }
    retry: RetryConfig = {
        "max_retries": 1000,
        "retry_timeout": timedelta(seconds=patience),
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2},
    }
    try:
        return _gcs(backing, client, retry) if backing.scheme == "gs" else _s3(backing, client, retry)
    except Exception as error:  # noqa: BLE001 - whatever obstore finds in the settings or the environment
        raise Misconfigured(
            f"{backing.url}: the store cannot be opened: {_first_line(error, backing)}"
        ) from None


def _s3(backing: Backing, client: "ClientConfig", retry: "RetryConfig") -> "S3Store":
    from obstore.store import S3Store  # 25 MB, which only those pay who have a remote bucket

    options: dict[str, str | bool] = {}
    region = backing.region
    endpoint = backing.endpoint
    if not endpoint and backing.scheme in _ENDPOINTS:
        endpoint = _ENDPOINTS[backing.scheme].format(region=region)
    virtual = _virtual(backing, endpoint)
    if endpoint:
        endpoint = _with_bucket(endpoint, backing.bucket) if virtual else endpoint.rstrip("/")
        # Both names: the environment's AWS_ENDPOINT_URL_S3 would win over the first alone.
        options |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
        region = region or "us-east-1"
    if region:
        options["region"] = region
    if virtual:
        options["virtual_hosted_style_request"] = True
    if backing.anonymous:
        options["skip_signature"] = True
    # A provider, not options: to these the environment would add a session token that belongs to another key.
    provider = _keys(backing) if backing.key else None
    return S3Store(
        backing.bucket,
        prefix=backing.prefix or None,
        client_options=client,
        retry_config=retry,
        credential_provider=provider,
        **options,  # pyright: ignore[reportArgumentType]
    )


def _gcs(backing: Backing, client: "ClientConfig", retry: "RetryConfig") -> "GCSStore":
    from obstore.store import GCSStore

    options: dict[str, str | bool] = {}
    if backing.endpoint:
        options["base_url"] = backing.endpoint.rstrip("/")
    if backing.token:
        options["bearer_token"] = backing.token
    elif backing.secret:
        options["service_account_key"] = backing.secret
    elif backing.anonymous and backing.endpoint:
        # An emulator takes any token; without one obstore would look for one even so when it writes.
        options["bearer_token"] = "anonymous"
    elif backing.anonymous:
        options["skip_signature"] = True
    return GCSStore(
        backing.bucket,
        prefix=backing.prefix or None,
        client_options=client,
        retry_config=retry,
        **options,  # pyright: ignore[reportArgumentType]
    )


class _keys:
    """What obstore asks for credentials."""

    def __init__(self, backing: Backing) -> None:
        self._backing = backing

    def __call__(self) -> "S3Credential":
        one = self._backing
        return {
            "access_key_id": one.key,
            "secret_access_key": one.secret,
            "token": one.token or None,
            "expires_at": None,
        }


def _plain(backing: Backing) -> bool:
    return backing.endpoint.startswith("http://")


def _loopback(backing: Backing) -> bool:
    host = urlsplit(backing.endpoint).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _virtual(backing: Backing, endpoint: str) -> bool:
    if backing.virtual_hosted is not None:
        return backing.virtual_hosted
    return (urlsplit(endpoint).hostname or "").endswith(_VIRTUAL_ONLY)


def _with_bucket(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    if parts.netloc.startswith(f"{bucket}."):
        return endpoint.rstrip("/")
    return f"{parts.scheme}://{bucket}.{parts.netloc}"


def _first_line(error: Exception, backing: Backing) -> str:
    text = str(error).partition("\n")[0][:200]
    for secret in (backing.secret, backing.token, backing.key):
        if secret:
            text = text.replace(secret, "…")
    return text
