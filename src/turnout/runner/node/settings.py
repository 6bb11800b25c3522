"""The runner's arguments and environment. No other module reads them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from typing import Dict, List, MutableMapping, NamedTuple

from .errors import Unusable

_SECRETS = ("TURNOUT_TOKEN", "TURNOUT_TOKEN_FILE")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
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
    engine_id: str
    patience: float
    address: str
    environment: Dict[str, str]
    """The runner's own, without its secrets."""


def read(arguments: List[str]) -> Settings:
    """Raises Unusable. Removes the token from the environment of this process."""
    if len(arguments) != 2:
        raise Unusable(USAGE)
    endpoint, address = arguments
    parts = address.split("/")
    if len(parts) != 3 or not all(_NAME.fullmatch(part) for part in parts):
        raise Unusable(USAGE)
    if not endpoint.startswith(("http://", "https://")):
        raise Unusable(f"the endpoint has to begin with http:// or https://. {USAGE}")
    environment = os.environ
    token = _token(environment)
    return Settings(
        endpoint.rstrip("/"),
        parts[1],
        parts[2],
        token,
        _fingerprint(environment.get("TURNOUT_FINGERPRINT", "")),
        _scratch(environment),
        environment.get("TURNOUT_ENGINE_ID") or environment.get("SLURM_JOB_ID", ""),
        _patience(environment.get("TURNOUT_PATIENCE", "")),
        environment.get("TURNOUT_ADDRESS", ""),
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
    if digits and not re.fullmatch(r"[0-9a-f]{64}", digits):
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
