"""Opens a bucket in a remote object store with obstore.

obstore's own error texts can be pages long: `remote/errors.py` replaces them with a sentence.
"""

from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from turnout.errors import Misconfigured
from turnout.storage.remote.settings import ENDPOINTS, RemoteSettings, check

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSStore, RetryConfig, S3Credential, S3Store

    ObjectStore = S3Store | GCSStore

PATIENCE = 120.0
"""Seconds for which requests to a failing store are retried."""

_CONNECT = timedelta(seconds=10)
_SILENCE = timedelta(minutes=2)
"""The longest time without a byte, and the longest time for one part of an upload."""
_REQUEST = timedelta(minutes=15)
_VIRTUAL_ONLY = (".myqcloud.com", ".myhuaweicloud.com")


def open_store(
    settings: RemoteSettings, patience: float = PATIENCE, silence: timedelta = _SILENCE
) -> "ObjectStore":
    """Sends no request yet. `silence`: the longest time without a byte. Raises Misconfigured."""
    check(settings, f"the settings of {settings.url!r}:")
    if not settings.bucket:
        raise Misconfigured(f"{settings.url!r} has no bucket")
    client: ClientConfig = {
        "allow_http": settings.unencrypted,
        "connect_timeout": _CONNECT,
        "read_timeout": silence,
        "timeout": _REQUEST,
    }
    retry: RetryConfig = {
        "max_retries": 1000,
        "retry_timeout": timedelta(seconds=patience),
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2},
    }
    try:
        return _gcs(settings, client, retry) if settings.scheme == "gs" else _s3(settings, client, retry)
    except Exception as error:  # noqa: BLE001 - obstore's errors about settings and environment have no common class
        raise Misconfigured(
            f"{settings.url}: the store cannot be opened: {_first_line(error, settings)}"
        ) from None


def _s3(settings: RemoteSettings, client: "ClientConfig", retry: "RetryConfig") -> "S3Store":
    from obstore.store import S3Store  # 25 MB of memory, which only services with a remote bucket need

    options: dict[str, str | bool] = {}
    region = settings.region
    endpoint = settings.endpoint
    if not endpoint and settings.scheme in ENDPOINTS:
        endpoint = ENDPOINTS[settings.scheme].format(region=region)
    virtual = _is_virtual_hosted(settings, endpoint)
    if endpoint:
        endpoint = _with_bucket(endpoint, settings.bucket) if virtual else endpoint.rstrip("/")
        # Both names: the environment's AWS_ENDPOINT_URL_S3 would override the first alone.
        options |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
        region = region or "us-east-1"
    if region:
        options["region"] = region
    if virtual:
        options["virtual_hosted_style_request"] = True
    if settings.anonymous:
        options["skip_signature"] = True
    # A provider, because obstore would add the environment's session token, of another key, to keys in the options.
    provider = _Credentials(settings) if settings.key else None
    return S3Store(
        settings.bucket,
        prefix=settings.prefix or None,
        client_options=client,
        retry_config=retry,
        credential_provider=provider,
        **options,  # pyright: ignore[reportArgumentType]
    )


def _gcs(settings: RemoteSettings, client: "ClientConfig", retry: "RetryConfig") -> "GCSStore":
    from obstore.store import GCSStore

    options: dict[str, str | bool] = {}
    if settings.endpoint:
        options["base_url"] = settings.endpoint.rstrip("/")
    if settings.token:
        options["bearer_token"] = settings.token
    elif settings.secret:
        options["service_account_key"] = settings.secret
    elif settings.anonymous and settings.endpoint:
        # An emulator accepts any token. Without one obstore looks for credentials when it writes.
        options["bearer_token"] = "anonymous"
    elif settings.anonymous:
        options["skip_signature"] = True
    return GCSStore(
        settings.bucket,
        prefix=settings.prefix or None,
        client_options=client,
        retry_config=retry,
        **options,  # pyright: ignore[reportArgumentType]
    )


class _Credentials:
    """The provider that obstore calls for credentials."""

    def __init__(self, settings: RemoteSettings) -> None:
        self._settings = settings

    def __call__(self) -> "S3Credential":
        settings = self._settings
        return {
            "access_key_id": settings.key,
            "secret_access_key": settings.secret,
            "token": settings.token or None,
            "expires_at": None,
        }


def _is_virtual_hosted(settings: RemoteSettings, endpoint: str) -> bool:
    if settings.virtual_hosted is not None:
        return settings.virtual_hosted
    return (urlsplit(endpoint).hostname or "").endswith(_VIRTUAL_ONLY)


def _with_bucket(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    if parts.netloc.startswith(f"{bucket}."):
        return endpoint.rstrip("/")
    return f"{parts.scheme}://{bucket}.{parts.netloc}"


def _first_line(error: Exception, settings: RemoteSettings) -> str:
    text = str(error).partition("\n")[0][:200]
    for secret in (settings.secret, settings.token, settings.key):
        if secret:
            text = text.replace(secret, "…")
    return text
