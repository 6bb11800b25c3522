"""The settings: one TOML file, then `TURNOUT_*` variables, then flags; each overrides those before it.

The only module that reads the environment.
"""

import ipaddress
import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from turnout import chaos, clusters, config_errors, limits, projects, registries, runtimes, webhooks
from turnout.clusters import Cluster, RunnerSettings
from turnout.errors import Misconfigured
from turnout.limits import Limits
from turnout.projects import KeyQuota, Quota
from turnout.registries import Registry
from turnout.runtimes import RuntimeDefaults, RuntimeSettings
from turnout.webhooks import Webhook

Table = dict[str, Any]

_BESIDE = "runtimes."
"""What settings that stand in `[runtimes]` itself are decoded as. No table of a file has this name by accident."""

_LONGEST_KEY_NAME = 1024
_LONGEST_RESTART = 3600
SHARED_CLUSTERS = ("ap-beijing", "ap-shanghai", "ap-guangzhou", "ap-chengdu")


class ServerSettings(msgspec.Struct, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: int = 8470
    data: str = ""
    """Default: /var/lib/turnout for root, else ~/.local/share/turnout."""
    restart_seconds: float = 30
    """How long clients wait for a crashed service to be started again. After that they get 503."""
    trusted_proxies: list[str] = []
    """Addresses and networks of reverse proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed."""


class Tls(msgspec.Struct, forbid_unknown_fields=True):
    """For all ports. Set both or neither."""

    cert: str = ""
    """A PEM file: the certificate, then the intermediate ones."""
    key: str = ""


class GrpcGateway(msgspec.Struct, forbid_unknown_fields=True):
    port: int = 0
    """The port of Vertex over gRPC; 0: none."""


class StoreSettings(msgspec.Struct, forbid_unknown_fields=True):
    url: str = ""
    """`postgresql://...`; empty: SQLite in the data directory."""


class LocalEngineSettings(msgspec.Struct, forbid_unknown_fields=True):
    sandbox: Literal["auto", "bubblewrap", "none"] = "auto"
    seccomp: bool = True
    """Whether the kernel denies programs in the sandbox the system calls that no training needs."""
    gpus: Literal["auto"] | int = "auto"
    """`auto`: the GPUs that the driver shows; or a number of simulated ones."""
    overcommit: float = 4
    """How many times as many cores as the machine has may be allocated."""
    containers: Literal["auto", "sandbox", "podman", "docker", "off"] = "auto"
    """How jobs run in images: in the sandbox, by podman, or not at all. `auto`: in the sandbox if there is one."""
    user: str = "turnout-job"
    """The user of the supervisor when the service runs as root. No job runs as this user."""
    uids: str = "auto"
    """As root: `first-last`, the uids and gids of jobs, one for each project; the first is the group of all of them."""
    network: Literal["auto", "private", "host", "none"] = "auto"
    """`private`: each job has its own network; `auto`: private where that works, else `host`."""
    reach: list[str] = []
    """`address:port` of this machine or of a network that a private network would not reach."""


class Engines(msgspec.Struct, forbid_unknown_fields=True):
    local: LocalEngineSettings = msgspec.field(default_factory=LocalEngineSettings)


class RemoteBucket(msgspec.Struct, forbid_unknown_fields=True):
    """A remote object store behind a bucket, or behind all buckets of a scheme."""

    url: str = ""
    """For a bucket: the remote bucket, `s3://name/prefix` or gs, cos, obs. For a scheme: `s3://` and so on."""
    endpoint: str = ""
    region: str = ""
    key: str = ""
    secret: str = ""
    """Set with `key`. If unset, the usual variables apply (`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`)."""
    token: str = ""
    virtual_hosted: bool | None = None
    """Whether the bucket is part of the host name. If unset: yes for endpoints that are known to require it."""
    anonymous: bool = False
    allow_http: bool = False
    project: str = ""
    """The only project that may use it; empty: every project."""


class S3Gateway(msgspec.Struct, forbid_unknown_fields=True):
    port: int = 0
    """The port of the S3, OBS and COS APIs; 0: none."""
    domains: list[str] = []
    """Names of this port. `<bucket>.<domain>` is then the address of a bucket."""


class GcsGateway(msgspec.Struct, forbid_unknown_fields=True):
    anonymous: bool = False
    """Whether open buckets can be used without a token, as with storage emulators."""


class StorageSettings(msgspec.Struct, forbid_unknown_fields=True):
    host_paths: list[str] | None = None
    """Directories that `file://` may name. Append `:rw` to a writable one. None: see `Settings.host_paths`."""
    buckets: dict[str, RemoteBucket] = {}
    schemes: dict[str, RemoteBucket] = {}
    """`cos`, `obs`, `gs`, `s3`. What neither names is embedded: a directory below the data directory."""
    in_jobs: bool = True
    """Whether programs in jobs reach the buckets of their project with the clouds' storage clients."""
    s3: S3Gateway = msgspec.field(default_factory=S3Gateway)
    gcs: GcsGateway = msgspec.field(default_factory=GcsGateway)


class ResourcePool(msgspec.Struct, forbid_unknown_fields=True):
    """A dedicated resource pool of ModelArts."""

    cluster: str = ""
    """The cluster of its jobs; empty: the first of the shared clusters."""
    flavor_type: Literal["", "CPU", "GPU"] = ""
    """Jobs of a CPU pool cannot have a flavor. Empty: they can have one or not."""


class DatasetSettings(msgspec.Struct, forbid_unknown_fields=True):
    """A dataset of ModelArts, by its id."""

    url: str = ""
    """`obs://bucket/dir/`, or any other source that storage supports."""
    versions: dict[str, str] = {}
    """Version id -> url. `url` is for requests without a version."""
    name: str = ""


class Subscription(msgspec.Struct, forbid_unknown_fields=True):
    """A subscribed algorithm of ModelArts, by its subscription id."""

    algorithm: str = ""
    """A JSON file with the request body that would create it. Without `versions`, it is used for every version."""
    versions: dict[str, str] = {}
    """Version id -> file."""


class RingKey(msgspec.Struct, forbid_unknown_fields=True):
    """A key of 32 bytes, or of 64 hexadecimal digits."""

    file: str = ""
    command: list[str] = []
    """A command that prints the key. It runs again every minute."""


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    server: ServerSettings = msgspec.field(default_factory=ServerSettings)
    tls: Tls = msgspec.field(default_factory=Tls)
    grpc: GrpcGateway = msgspec.field(default_factory=GrpcGateway)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    engines: Engines = msgspec.field(default_factory=Engines)
    clusters: dict[str, Cluster] = {}
    runner: RunnerSettings = msgspec.field(default_factory=RunnerSettings)
    runtimes: dict[str, RuntimeSettings] = {}
    runtime_defaults: RuntimeDefaults = msgspec.field(name=_BESIDE, default_factory=RuntimeDefaults)
    pools: dict[str, ResourcePool] = {}
    images: dict[str, str] = {}
    """Image name or pattern -> what stands for it: a runtime, an image (also `oci:/path:tag`), `host` or `pull`."""
    registries: dict[str, Registry] = {}
    datasets: dict[str, DatasetSettings] = {}
    subscriptions: dict[str, Subscription] = {}
    storage: StorageSettings = msgspec.field(default_factory=StorageSettings)
    keyring: dict[str, RingKey] = {}
    """`projects/…/cryptoKeys/…` -> where the key comes from."""
    limits: Limits = msgspec.field(default_factory=Limits)
    projects: dict[str, Quota] = {}
    keys: dict[str, KeyQuota] = {}
    webhooks: dict[str, Webhook] = {}
    no_auth: bool = False
    root_key: str = ""
    """`<id>:<secret>`; empty: kept in the data directory, made at the first start."""

    @property
    def data(self) -> Path:
        if self.server.data:
            return Path(self.server.data).expanduser().absolute()
        if os.geteuid() == 0:
            return Path("/var/lib/turnout")
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        return Path(base).expanduser().absolute() / "turnout"

    @property
    def tls_files(self) -> tuple[Path, Path] | None:
        """Certificate and key."""
        tls = self.tls
        return (Path(tls.cert).expanduser(), Path(tls.key).expanduser()) if tls.cert else None

    @property
    def loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.server.host).is_loopback
        except ValueError:
            return self.server.host == "localhost"

    def trusted_proxies(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        return [_network(text) for text in self.server.trusted_proxies]

    def endpoint(self, host: str, port: int) -> str:
        scheme = "https" if self.tls_files else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def all_clusters(self) -> dict[str, Cluster]:
        """The four shared clusters on the local engine, and those that the settings add or replace."""
        return {name: Cluster() for name in SHARED_CLUSTERS} | self.clusters

    def remote_clusters(self) -> dict[str, Cluster]:
        """Those beyond this machine."""
        return {name: one for name, one in self.clusters.items() if one.engine != "local"}

    def host_paths(self) -> list[tuple[Path, bool]]:
        """(directory, writable) that `file://` may reach."""
        if self.storage.host_paths is None:
            if not self.loopback or self.no_auth:
                return []
            return [(Path.home(), True), (Path(tempfile.gettempdir()), True)]
        return [(Path(p.removesuffix(":rw")), p.endswith(":rw")) for p in self.storage.host_paths]


def usual_credentials() -> dict[str, str]:
    """Environment variables that the clouds' own tools read."""
    return {name: os.environ[name] for name in ("GOOGLE_APPLICATION_CREDENTIALS",) if name in os.environ}


def cluster_environment(prefix: str) -> dict[str, str]:
    """The environment of a cluster's commands. Some pass it on to jobs, so it has only what they need, and those with
    the prefix, without Turnout's own.
    """
    needed = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LD_LIBRARY_PATH", "SSH_AUTH_SOCK")
    others = {name: value for name, value in os.environ.items() if not name.startswith("TURNOUT_")}
    return {name: value for name, value in others.items() if name in needed or name.startswith(prefix)}


def proxy_environment() -> dict[str, str]:
    """The variables by which programs find an HTTP proxy."""
    names = ("http_proxy", "https_proxy", "no_proxy")
    return {name: value for name, value in os.environ.items() if name.lower() in names}


def load(file: str | None = None, flags: Table | None = None) -> Settings:
    """`flags` has the shape of the file; None values in it count as not given."""
    table: Table = {}
    file = file or os.environ.get("TURNOUT_CONFIG")
    if file:
        table = _read(Path(file))
    _merge(table, _from_environment())
    _merge(table, flags or {})
    _split_runtimes(table)
    try:
        settings = msgspec.convert(table, Settings)
    except msgspec.ValidationError as error:
        raise Misconfigured(config_errors.explain(str(error), file, _TABLES)) from None
    _check(settings)
    return settings


def _split_runtimes(table: Table) -> None:
    """Separates the settings of all runtimes from the tables of single ones."""
    table.pop(_BESIDE, None)
    found = table.get("runtimes")
    if isinstance(found, dict):
        table[_BESIDE] = {name: value for name, value in found.items() if not isinstance(value, dict)}
        table["runtimes"] = {name: value for name, value in found.items() if isinstance(value, dict)}


def prepare_chaos() -> None:
    """For tests: see `turnout.chaos`."""
    chaos.kill_at = os.environ.get("TURNOUT_KILL_AT", "")


def client_endpoint() -> str | None:
    return os.environ.get("TURNOUT_ENDPOINT")


def client_key() -> str | None:
    """`<id>:<secret>`"""
    return os.environ.get("TURNOUT_KEY")


def config_home() -> Path:
    """The directory in which the command-line tools keep their login."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "turnout"


def locale() -> str:
    """The locale of messages, such as `zh_CN.UTF-8`; empty if none is set."""
    return next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "") or ""


def search_path() -> list[str]:
    return (os.environ.get("PATH") or os.defpath).split(os.pathsep)


def python_directories() -> list[str]:
    """Where interpreters are looked for by their version: on the PATH, and where pyenv and uv install them."""
    installed = [".pyenv/versions/*/bin", ".local/share/uv/python/*/bin"]
    below_home = [
        str(path) for pattern in installed for path in sorted(Path.home().glob(pattern), reverse=True)
    ]
    return list(dict.fromkeys([*search_path(), "/usr/local/bin", "/usr/bin", *below_home]))


def download_environment() -> dict[str, str]:
    """The variables that a download needs behind a proxy or with an authority of one's own."""
    names = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")
    return {name: value for name, value in os.environ.items() if name.lower() in names}


def _read(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path} is not TOML: {error}") from None


_VARIABLES: dict[str, tuple[str, ...]] = {
    "TURNOUT_HOST": ("server", "host"),
    "TURNOUT_PORT": ("server", "port"),
    "TURNOUT_DATA": ("server", "data"),
    "TURNOUT_STORE_URL": ("store", "url"),
    "TURNOUT_SANDBOX": ("engines", "local", "sandbox"),
    "TURNOUT_GPUS": ("engines", "local", "gpus"),
    "TURNOUT_NETWORK": ("engines", "local", "network"),
    "TURNOUT_OVERCOMMIT": ("engines", "local", "overcommit"),
    "TURNOUT_ROOT_KEY": ("root_key",),
}
_NUMBERS = {"TURNOUT_PORT": int, "TURNOUT_OVERCOMMIT": float}


def _from_environment() -> Table:
    table: Table = {}
    for variable, place in _VARIABLES.items():
        text = os.environ.get(variable)
        if text:
            _put(table, place, _value(variable, text))
    return table


def _value(variable: str, text: str) -> object:
    if variable == "TURNOUT_GPUS":
        return int(text) if text.isdecimal() else text
    number = _NUMBERS.get(variable)
    if number is None:
        return text
    try:
        return number(text)
    except ValueError:
        raise Misconfigured(f"{variable} must be a number, not {text!r}") from None


def _put(table: Table, place: tuple[str, ...], value: object) -> None:
    for key in place[:-1]:
        table = table.setdefault(key, {})
    table[place[-1]] = value


def _merge(table: Table, over: Table) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(table.setdefault(key, {}), dict):
            _merge(table[key], value)
        elif value is not None:
            table[key] = value


_TABLES: dict[str, type[msgspec.Struct]] = {
    "": Settings,
    "server": ServerSettings,
    "tls": Tls,
    "grpc": GrpcGateway,
    "store": StoreSettings,
    "engines": Engines,
    "engines.local": LocalEngineSettings,
    "clusters[...]": Cluster,
    "runner": RunnerSettings,
    _BESIDE: RuntimeDefaults,
    "runtimes[...]": RuntimeSettings,
    "pools[...]": ResourcePool,
    "datasets[...]": DatasetSettings,
    "subscriptions[...]": Subscription,
    "storage": StorageSettings,
    "storage.buckets[...]": RemoteBucket,
    "storage.schemes[...]": RemoteBucket,
    "storage.s3": S3Gateway,
    "storage.gcs": GcsGateway,
    "keyring[...]": RingKey,
    "limits": Limits,
    "projects[...]": Quota,
    "keys[...]": KeyQuota,
    "webhooks[...]": Webhook,
    "registries[...]": Registry,
}


def _check(settings: Settings) -> None:
    listens = {"server": settings.server, "grpc": settings.grpc, "storage.s3": settings.storage.s3}
    for table, one in listens.items():
        if not 0 <= one.port <= 65535:
            raise Misconfigured(f"[{table}] port must be from 0 to 65535, not {one.port}")
    if not 0 <= settings.server.restart_seconds <= _LONGEST_RESTART:
        raise Misconfigured(f"[server] restart_seconds must be from 0 to {_LONGEST_RESTART}")
    if bool(settings.tls.cert) != bool(settings.tls.key):
        missing = "key" if settings.tls.cert else "cert"
        raise Misconfigured(f"[tls] {missing} is missing: a certificate and its key go together")
    if settings.no_auth and not settings.loopback:
        raise Misconfigured(
            f"--no-auth works on loopback only, not on {settings.server.host}: leave it out, or use --host 127.0.0.1"
        )
    if settings.trusted_proxies() and settings.no_auth:
        raise Misconfigured(
            "--no-auth and [server] trusted_proxies cannot be used together: all callers of the proxy would be you"
        )
    if settings.root_key and not re.fullmatch(r"[\w.-]{1,64}:\S{8,128}", settings.root_key):
        raise Misconfigured(
            "TURNOUT_ROOT_KEY must be <id>:<secret>, the secret at least 8 characters without spaces"
        )
    clusters.check(settings.clusters, settings.runner)
    runtimes.check(settings.runtimes, settings.runtime_defaults)
    for name, pool in settings.pools.items():
        if pool.cluster and pool.cluster not in settings.all_clusters():
            known = ", ".join(settings.all_clusters())
            raise Misconfigured(f"[pools.{name}] cluster = {pool.cluster!r} is not known; there are {known}")
    if isinstance(settings.engines.local.gpus, int) and settings.engines.local.gpus < 0:
        raise Misconfigured("[engines.local] gpus must be auto or a whole number of at least 0")
    if settings.engines.local.containers == "docker":
        raise Misconfigured(
            '[engines.local] containers = "docker" is not supported: containers of its daemon are outside of the '
            'private networks and limits of jobs, and who may use the daemon is root. Set it to "sandbox" or "podman"'
        )
    if settings.engines.local.overcommit <= 0:
        raise Misconfigured("[engines.local] overcommit must be more than 0")
    for text in settings.engines.local.reach:
        parse_reach(text)
    limits.check(settings.limits)
    projects.check(settings.projects, settings.keys)
    webhooks.check(settings.webhooks)
    registries.check(settings.registries)
    for scheme in settings.storage.schemes:
        if scheme not in ("cos", "obs", "gs", "s3"):
            raise Misconfigured(f"[storage.schemes.{scheme}] is not known; there are cos, obs, gs and s3")
    _check_keyring(settings.keyring)
    for path in settings.storage.host_paths or []:
        if not path.startswith("/"):
            raise Misconfigured(f"[storage] host_paths: {path!r} is not an absolute path")


def parse_reach(text: str) -> tuple[str, int]:
    """Host and port of an entry of `[engines.local] reach`. Raises Misconfigured."""
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        address = None
    if address is None or address.is_unspecified or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Misconfigured(
            f"[engines.local] reach: {text!r} is not an address and a port, such as 127.0.0.1:5432 or [::1]:5432"
        )
    return str(address), int(port)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise Misconfigured(
            f"[server] trusted_proxies: {text!r} is not an address or a network, such as 127.0.0.1 or 10.0.0.0/8"
        ) from None


def _check_keyring(keyring: dict[str, RingKey]) -> None:
    for name, key in keyring.items():
        table = f'[keyring."{name}"]'
        if len(name.encode()) > _LONGEST_KEY_NAME:
            raise Misconfigured(f"{table}: a key's name has at most {_LONGEST_KEY_NAME} bytes")
        if bool(key.file) == bool(key.command):
            raise Misconfigured(f"{table} needs one of file and command")
        if key.file and not key.file.startswith("/"):
            raise Misconfigured(f"{table} file = {key.file!r} is not an absolute path")
