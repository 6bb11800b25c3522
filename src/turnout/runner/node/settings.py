"""The runner's arguments and environment. No other module reads them."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Dict, List, MutableMapping, NamedTuple

from .errors import Unusable

_SECRETS = ("TURNOUT_TOKEN", "TURNOUT_TOKEN_FILE")
_PORTS = {"http": 80, "https": 443}
_PATIENCE = 86400.0

USAGE = "usage: runner.pyz <endpoint> <cluster>/<attempt>/<replica>, with TURNOUT_TOKEN or TURNOUT_TOKEN_FILE"


class Settings(NamedTuple):
    endpoint: str
    attempt: str
    replica: str
    token: str
    fingerprint: str
    """The SHA-256 of the only certificate that is accepted; empty: the usual verification."""
    scratch: str
    home: str
    """Where the runner has to work, if its container shows parts of it at the targets of mounts; else empty."""
    engine_id: str
    patience: float
    address: str
    node: str
    """The cluster's name for the node."""
    enforce_memory: bool
    """Whether the program is killed if it uses more memory than its limit: nobody else enforces it here."""
    environment: Dict[str, str]
    """The runner's own, without its secrets."""


class Endpoint(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    """Precedes all other paths."""


def split_endpoint(url: str) -> Endpoint:
    """Of `Settings.endpoint`. Raises Unusable."""
    # Neither a module for URLs nor patterns: their start-up time would be noticed at each start.
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if authority.startswith("["):
        host, end, port = authority[1:].partition("]")
        whole = bool(host and end) and not host.strip("0123456789abcdefABCDEF:.") and port[:1] in ("", ":")
        port = port[1:]
    else:
        host, _, port = authority.partition(":")
        whole = bool(host) and not any(letter in authority for letter in "@[]")
    number = port.isascii() and port.isdigit() and len(port) <= 5
    if scheme not in _PORTS or not whole or (port and not number) or authority.endswith(":"):
        raise Unusable(f"the endpoint has to begin with http:// or https://. {USAGE}")
    return Endpoint(scheme, host, int(port or _PORTS[scheme]), slash + path)


def _is_name(text: str) -> bool:
    plain = text.isascii() and text.replace(".", "").replace("_", "").replace("-", "").isalnum()
    return plain and text[0].isalnum()


def find_program(name: str) -> str:
    """Its path; empty: it is not on PATH."""
    paths = (os.path.join(directory, name) for directory in os.get_exec_path())
    return next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), "")


def read(arguments: List[str]) -> Settings:
    """Raises Unusable. Removes the token from the environment of this process."""
    if len(arguments) != 2:
        raise Unusable(USAGE)
    endpoint, address = arguments
    parts = address.split("/")
    if len(parts) != 3 or not all(map(_is_name, parts)):
        raise Unusable(USAGE)
    endpoint = endpoint.rstrip("/")
    split_endpoint(endpoint)
    environment = os.environ
    token = _token(environment)
    return Settings(
        endpoint,
        parts[1],
        parts[2],
        token,
        _fingerprint(environment.get("TURNOUT_FINGERPRINT", "")),
        "" if environment.get("TURNOUT_HOME") else _scratch(environment),
        environment.get("TURNOUT_HOME", ""),
        environment.get("TURNOUT_ENGINE_ID") or environment.get("SLURM_JOB_ID", ""),
        _patience(environment.get("TURNOUT_PATIENCE", "")),
        environment.get("TURNOUT_ADDRESS", ""),
        environment.get("TURNOUT_NODE") or environment.get("SLURMD_NODENAME") or os.uname().nodename,
        environment.get("TURNOUT_ENFORCE_MEMORY", "") == "1",
        dict(environment),
    )


def _token(environment: MutableMapping[str, str]) -> str:
    token, path = (environment.get(name, "") for name in _SECRETS)
    if not token and path:
        try:
            with open(path, encoding="ascii") as file:
                token = file.read().strip()
        except (OSError, ValueError) as error:
            raise Unusable(f"the file of TURNOUT_TOKEN_FILE cannot be read: {error}") from None
    for name in _SECRETS:
        _erase(name)
        environment.pop(name, None)
    if not token:
        raise Unusable(f"there is no token. {USAGE}")
    return token


def _erase(name: str) -> None:
    """Overwrites the value where /proc/<pid>/environ shows it."""
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_void_p
        libc.getenv.argtypes = [ctypes.c_char_p]
        value = libc.getenv(name.encode())
        if value:
            ctypes.memset(value, 0, len(ctypes.string_at(value)))


def _fingerprint(text: str) -> str:
    digits = text.replace(":", "").strip().lower()
    if digits and (len(digits) != 64 or digits.strip("0123456789abcdef")):
        raise Unusable("TURNOUT_FINGERPRINT has to be a SHA-256 in hexadecimal digits")
    return digits


def _scratch(environment: MutableMapping[str, str]) -> str:
    given = environment.get("TURNOUT_SCRATCH")
    candidates = [given] if given else [environment.get("SLURM_TMPDIR"), environment.get("TMPDIR"), "/tmp"]
    for directory in candidates:
        if directory and os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK):
            return os.path.realpath(directory)
    raise Unusable(f"none of these is a directory that can be written: {', '.join(filter(None, candidates))}")


def _patience(text: str) -> float:
    try:
        return float(text) if text else _PATIENCE
    except ValueError:
        raise Unusable("TURNOUT_PATIENCE has to be a number of seconds") from None
