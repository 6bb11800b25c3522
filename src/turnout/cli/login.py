"""What `tictl login` keeps, and from where the command lines take endpoint and key."""

import contextlib
import os
import tempfile
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from turnout import config
from turnout.cli.client import NOBODY, Client, Key
from turnout.errors import Misconfigured
from turnout.paths import Paths

DEFAULT_ENDPOINT = "http://127.0.0.1:8470"
DEFAULT_CLUSTER = config.SHARED_CLUSTERS[0]


class Login(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Everything may be empty: a default cluster can be chosen without a key."""

    endpoint: str = ""
    secret_id: str = ""
    secret_key: str = ""
    region: str = ""
    cluster: str = ""

    def place(self, region: str = "", cluster: str = "") -> tuple[str, str]:
        """(region, cluster) that a command means which names both, one or none of them."""
        default = self.cluster or DEFAULT_CLUSTER
        known = self.region if cluster in ("", default) else ""
        return region or known or cluster or default, cluster or default


def stored() -> Login:
    """An empty one if nobody is logged in."""
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


def keep(login: Login) -> None:
    """Whole or not at all, and nobody else may read it."""
    file = _file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=file.parent, prefix=file.name)  # makes it 0600
        with open(handle, "wb") as out:
            out.write(msgspec.json.encode(login))
        os.replace(draft, file)
    except OSError as error:
        raise Misconfigured(f"{file} cannot be written: {error.strerror}") from None


def drop() -> bool:
    """False if nobody was logged in."""
    try:
        _file().unlink()
    except FileNotFoundError:
        return False
    return True


def connect(endpoint: str | None = None, login: Login | None = None) -> Client:
    """Endpoint: the option, TURNOUT_ENDPOINT, the login, the default. Key: see `find_key`."""
    login = login or stored()
    endpoint = endpoint or config.client_endpoint() or login.endpoint or DEFAULT_ENDPOINT
    return Client(endpoint, find_key(endpoint, login) or NOBODY)


def find_key(endpoint: str, login: Login) -> Key | None:
    """TURNOUT_KEY, the login, or on the service's own machine its root key if this user may read it."""
    if variable := config.client_key():
        return Key.parse(variable, "TURNOUT_KEY")
    if login.secret_id:
        return Key(login.secret_id, login.secret_key)
    if not _is_here(endpoint):
        return None
    root_key = Paths(config.load().data).root_key
    with contextlib.suppress(OSError):
        return Key.parse(root_key.read_text(), str(root_key))
    return None


def _file() -> Path:
    return config.config_home() / "login.json"


def _is_here(endpoint: str) -> bool:
    host = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}").hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
