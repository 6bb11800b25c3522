"""The path of a field in a request, as the caller spelled it, and errors about the field."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from turnout.errors import Invalid

MAX_QUOTED = 100
"""Characters of an invalid value that an error message quotes."""

_CAPITAL = re.compile("[A-Z]")


class FieldPath(NamedTuple):
    """The path of a field: `path / "jobSpec" / "workerPoolSpecs" / 0`."""

    spellings: Mapping[str, str] = {}
    """The caller's spelling of the last name of each path, for names with two spellings."""
    path: str = ""

    def __truediv__(self, step: str | int) -> "FieldPath":
        if isinstance(step, int):
            return FieldPath(self.spellings, f"{self.path}[{step}]")
        return FieldPath(self.spellings, f"{self.path}.{step}" if self.path else step)

    @property
    def as_sent(self) -> str:
        """A field that the caller did not send is spelled like the fields above it."""
        steps, prefix, as_sent = self.path.split("."), "", list[str]()
        for step in steps:
            name, bracket, index = step.partition("[")
            prefix = f"{prefix}.{name}" if prefix else name
            as_sent.append(
                self.spellings.get(prefix, name if not _underscored(as_sent) else snake(name))
                + bracket
                + index
            )
            prefix += bracket + index
        return ".".join(as_sent)

    def invalid(self, text: str) -> Invalid:
        return Invalid(f"{self.as_sent}: {text}", field=self.as_sent)

    def missing(self, why: str = "") -> Invalid:
        return Invalid(f"{self.as_sent} is required{why}.", field=self.as_sent)


def snake(name: str) -> str:
    """`bootDiskSizeGb` → `boot_disk_size_gb`."""
    return _CAPITAL.sub(lambda match: "_" + match[0].lower(), name)


def quoted(text: str) -> str:
    """An invalid value for a message, in quotes and cut to MAX_QUOTED."""
    return repr(text) if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]!r}…"


def _underscored(as_sent: list[str]) -> bool:
    return any("_" in name for name in as_sent)
