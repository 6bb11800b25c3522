"""Parses addresses: `/v1/projects/p/locations/l/customJobs/123:cancel?$alt=json`."""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from turnout.errors import Invalid

VERSIONS = ("v1", "v1beta1", "ui")
ENTRIES = "/v2/entries:list"
TOKEN = "/token"

REPEATED = frozenset({"timeSeries"})
"""Parameters that may be there several times. Their values are joined by commas."""
_LOCATION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SYSTEM = frozenset(
    {
        "access_token", "alt", "apiKey", "callback", "fields", "key", "oauth_token", "outputDefaults", "prettyPrint",
        "quotaUser", "trace", "unique", "uploadType", "upload_protocol", "userProject", "xgafv",
    }
)  # fmt: skip
"""The query parameters that every call of Google's APIs accepts, with the prefix `$`, `$.` or none."""
_ENUM_NUMBERS = "enum-encoding=int"


class Address(NamedTuple):
    version: str
    project: str
    location: str
    """Empty for the list of locations."""
    resource: tuple[str, ...]
    verb: str
    """After the last colon: `cancel`."""


class Query(NamedTuple):
    values: dict[str, str]
    numbers: bool
    """Whether the caller requested enum numbers in place of names."""


def owns(path: str) -> bool:
    """Whether a path belongs to Vertex: all of `/v1` except the addresses of ModelArts."""
    if path in (ENTRIES, TOKEN):
        return True
    match [part for part in path.split("/", 6) if part][:4]:
        case ["v1", "projects", _, "locations"]:
            return True
        case ["v1", _, "workspaces", *_]:
            return False
        case [version, *_]:
            return version in VERSIONS
        case _:
            return False


def parse(raw_path: bytes) -> Address | None:
    """None if the path is not below a location. Raises Invalid."""
    parts = [unquote(part) for part in raw_path.decode("latin-1").split("/") if part]
    match parts:
        case [version, "projects", project, "locations"] if version in VERSIONS:
            return Address(version, project, "", ("locations",), "")
        case [version, "projects", project, "locations", location, *resource] if version in VERSIONS:
            last, _, verb = resource[-1].partition(":") if resource else ("", "", "")
            check_location(location)
            return Address(version, project, location, (*resource[:-1], last) if resource else (), verb)
        case _:
            return None


def read_query(query: bytes, known: tuple[str, ...]) -> Query:
    """Raises Invalid for a parameter that the call does not have, with Google's message."""
    values: dict[str, str] = {}
    numbers = False
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        field = _camel(name)
        if field in known:
            values[field] = f"{values[field]},{value}" if field in REPEATED and field in values else value
        elif name in ("alt", "$alt"):
            numbers = _read_alt(value)
        elif name.lstrip("$").lstrip(".") not in _SYSTEM:
            raise Invalid(
                f'Invalid JSON payload received. Unknown name "{name[:100]}": Cannot bind query parameter. '
                f"Field '{name[:100]}' could not be found in request message."
                + (f" It has {', '.join(known)}." if known else ""),
                field=name[:100],
            )
    return Query(values, numbers)


def _read_alt(value: str) -> bool:
    form, *options = value.split(";")
    if form not in ("json", ""):
        raise Invalid(f"alt: {value[:100]!r} is not supported; use json.", field="alt")
    return _ENUM_NUMBERS in options


def check_location(location: str) -> None:
    if not _LOCATION.fullmatch(location):
        raise Invalid(
            f"{location[:100]!r} is not a location; use a name such as us-central1.", field="location"
        )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
