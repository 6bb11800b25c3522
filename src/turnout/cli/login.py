"""The login that `tictl login` stores, and where the command lines find endpoint and key."""

import contextlib
import os
import tempfile
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from turnout import config
from turnout.cli.client import ANONYMOUS, Client, Credentials
from turnout.cli.options import DEFAULT_CLUSTER
from turnout.errors import Misconfigured
from turnout.paths import Paths

DEFAULT_ENDPOINT = "http://127.0.0.1:8470"
_ANY_ADDRESS = ("0.0.0.0", "::")


class Login(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Any field may be empty: a default cluster can be set without a key."""

    endpoint: str = ""
    secret_id: str = ""
    secret_key: str = ""
    region: str = ""
    cluster: str = ""

    def region_and_cluster(self, region: str = "", cluster: str = "") -> tuple[str, str]:
        """(region, cluster) of a command that names both, one or none of them."""
        default = self.cluster or DEFAULT_CLUSTER
        known = self.region if cluster in ("", default) else ""
        return region or known or cluster or default, cluster or default


def stored() -> Login:
    """The stored login; empty if there is none."""
    try:
        return msgspec.json.decode(_file().read_bytes(), type=Login)
    except FileNotFoundError:
        return Login()
    except OSError as error:
        raise Misconfigured(f"{_file()} cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise Misconfigured(
            f"{_file()} is not a login ({error}): remove it and run `tictl login` again"
        ) from None


def save(login: Login) -> None:
    """Stores the login atomically, with mode 0600."""
    file = _file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=file.parent, prefix=file.name)  # makes it 0600
        with open(handle, "wb") as out:
            out.write(msgspec.json.encode(login))
        os.replace(draft, file)
    except OSError as error:
        raise Misconfigured(f"{file} cannot be written: {error.strerror}") from None


def remove() -> bool:
    """Returns False if there was no login."""
    try:
        _file().unlink()
    except FileNotFoundError:
        return False
    return True


def connect(endpoint: str | None = None, login: Login | None = None, project: str = "") -> Client:
    """Endpoint: the option, TURNOUT_ENDPOINT, the login, the default. Key: see `find_key`."""
    login = login or stored()
    endpoint = find_endpoint(endpoint, login)
    client = Client(endpoint, find_key(endpoint, login) or ANONYMOUS)
    client.project = project
    return client


def find_endpoint(option: str | None, login: Login) -> str:
    return option or config.client_endpoint() or login.endpoint or DEFAULT_ENDPOINT


def find_key(endpoint: str, login: Login) -> Credentials | None:
    """TURNOUT_KEY, the login, or the root key of this machine's service if the endpoint is that service's."""
    if variable := config.client_key():
        return Credentials.parse(variable, "TURNOUT_KEY")
    if login.secret_id:
        return Credentials(login.secret_id, login.secret_key)
    if not _is_local(endpoint):
        return None
    settings = config.load()
    paths = Paths(settings.data)
    with contextlib.suppress(OSError):
        root_key = Credentials.parse(paths.root_key.read_text(), str(paths.root_key))
        return root_key if _listens_at(paths, settings, endpoint) else None
    return None


def _file() -> Path:
    return config.config_home() / "login.json"


def _is_local(endpoint: str) -> bool:
    host = _address(endpoint)[0]
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listens_at(paths: Paths, settings: config.Settings, endpoint: str) -> bool:
    """Whether the service of that data directory listens there; `endpoint` is on this machine."""
    try:
        known = paths.endpoint.read_text()
    except FileNotFoundError:  # made by an earlier version
        known = f"http://{settings.server.host}:{settings.server.port}"
    return _same(endpoint, known) or (
        _address(known)[0] in _ANY_ADDRESS and _address(known)[1] == _address(endpoint)[1]
    )


def _same(endpoint: str, other: str) -> bool:
    return _address(endpoint) == _address(other)


def _address(endpoint: str) -> tuple[str, int]:
    """Host and port; localhost is 127.0.0.1."""
    url = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    host = url.hostname or ""
    with contextlib.suppress(ValueError):
        return "127.0.0.1" if host == "localhost" else host, url.port or (
            443 if url.scheme == "https" else 80
        )
    return host, 0
