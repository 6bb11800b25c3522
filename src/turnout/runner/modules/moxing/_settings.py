"""Which object store moxing uses, and how: the variables of the job, or what the program sets with `set_auth`."""

from __future__ import annotations

import os
from typing import Any, Dict, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

_HUAWEI = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SECURITY_TOKEN")
_AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_NO = ("0", "false", "False")
_BUCKET_IN_HOST = (".myhuaweicloud.com", ".amazonaws.com")


class Options:
    """What `set_auth` has set; None: not set."""

    ak: Optional[str] = None
    sk: Optional[str] = None
    token: Optional[str] = None
    server: Optional[str] = None
    port: Optional[int] = None
    is_secure: Optional[bool] = None
    ssl_verify: Optional[bool] = None
    path_style: Optional[bool] = None
    retry: int = 10
    retry_wait: float = 0.1
    client_timeout: float = 60
    list_max_keys: int = 1000


options = Options()


class Endpoint(NamedTuple):
    secure: bool
    host: str
    port: int
    verify: bool
    path_style: bool
    """The bucket is in the path; otherwise in the host."""
    region: str
    key: str
    secret: str
    token: str

    @property
    def is_default_port(self) -> bool:
        return self.port == (443 if self.secure else 80)


def set_auth(
    ak: Optional[str] = None,
    sk: Optional[str] = None,
    server: Optional[str] = None,
    port: Optional[int] = None,
    is_secure: Optional[bool] = None,
    ssl_verify: Optional[bool] = None,
    long_conn_mode: Optional[bool] = None,
    path_style: Optional[bool] = None,
    retry: Optional[int] = None,
    retry_wait: Optional[float] = None,
    client_timeout: Optional[float] = None,
    list_max_keys: Optional[int] = None,
    security_token: Optional[str] = None,
    **others: Any,
) -> None:
    """Sets the key, the server and the behaviour of all later calls. What is None stays as it is.

    `is_secure` and `path_style` are about a `server` of the program's own: the job's object store is where its
    variables say. Other arguments of Huawei's moxing are accepted and have no effect.
    """
    if ak is not None or sk is not None:
        # A key of the program's own has no token, unless it comes with one.
        options.token = security_token or ""
    elif security_token is not None:
        options.token = security_token
    given: Dict[str, Any] = {
        "ak": ak,
        "sk": sk,
        "server": server,
        "port": port,
        "is_secure": is_secure,
        "ssl_verify": ssl_verify,
        "path_style": path_style,
        "retry": None if retry is None else max(1, int(retry)),
        "retry_wait": retry_wait,
        "client_timeout": client_timeout,
        "list_max_keys": None if list_max_keys is None else min(1000, max(1, int(list_max_keys))),
    }
    for name, value in given.items():
        if value is not None:
            setattr(options, name, value)


def endpoint() -> Endpoint:
    """Raises OSError if nothing says where the object store is."""
    given, names = _environment()
    server = options.server or given
    if not server:
        raise OSError(
            "moxing does not know where the object store is: S3_ENDPOINT and AWS_ENDPOINT_URL are not set, "
            "and the program has not called mox.file.set_auth(ak=…, sk=…, server=…)"
        )
    secure = os.environ.get("S3_USE_HTTPS", "1") not in _NO
    if options.server and options.is_secure is not None:
        secure = options.is_secure
    if "://" in server:
        secure = server.startswith("https://")
    else:
        server = f"{'https' if secure else 'http'}://{server}"
    parts = urlsplit(server)
    host = parts.hostname or ""
    by_path = not host.endswith(_BUCKET_IN_HOST)
    key, secret, token = _credentials(names)
    if options.server and urlsplit(given).hostname != host and options.ak is None:
        token = ""  # that of the job is for the job's object store
    return Endpoint(
        secure=secure,
        host=host,
        port=(options.server and options.port) or parts.port or (443 if secure else 80),
        verify=_verify() if options.ssl_verify is None else options.ssl_verify,
        path_style=by_path if not options.server or options.path_style is None else options.path_style,
        region=_variable("AWS_REGION") or _variable("AWS_DEFAULT_REGION") or _region(host),
        key=key,
        secret=secret,
        token=token,
    )


def _environment() -> Tuple[str, Tuple[str, str, str]]:
    """The address of the object store, and the names of the variables that belong to it."""
    server = _variable("S3_ENDPOINT")
    if server:
        return server, _HUAWEI
    return _variable("AWS_ENDPOINT_URL_S3") or _variable("AWS_ENDPOINT_URL"), _AWS


def _credentials(names: Tuple[str, str, str]) -> Tuple[str, str, str]:
    if options.ak is not None:
        return options.ak, options.sk or "", options.token or ""
    key, secret, token = (_variable(name) for name in names)
    if options.token is not None:
        token = options.token
    elif token and token == _variable(_AWS[2]) and key != _variable(_AWS[0]):
        token = ""  # the program has replaced the key, and left the token of the job's key
    return key, secret, token


def _verify() -> bool:
    return os.environ.get("S3_VERIFY_SSL", "1") not in _NO


def _variable(name: str) -> str:
    return os.environ.get(name, "")


def _region(host: str) -> str:
    labels = host.split(".")
    return labels[1] if len(labels) > 2 and labels[0] in ("obs", "s3") else "us-east-1"
