"""Where in a request something is, and how the caller spelt the way there."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from turnout.errors import Invalid

SHOWN = 100
"""So much of a wrong value is told."""

_CAPITAL = re.compile("[A-Z]")


class At(NamedTuple):
    """A place in the document: `at / "jobSpec" / "workerPoolSpecs" / 0`."""

    names: Mapping[str, str] = {}
    """How the caller spelt the last name of each place, where there are two ways to."""
    path: str = ""

    def __truediv__(self, step: str | int) -> "At":
        if isinstance(step, int):
            return At(self.names, f"{self.path}[{step}]")
        return At(self.names, f"{self.path}.{step}" if self.path else step)

    @property
    def spelt(self) -> str:
        """What the caller did not write is spelt as the rest of the way is."""
        steps, place, spelt = self.path.split("."), "", list[str]()
        for step in steps:
            name, bracket, index = step.partition("[")
            place = f"{place}.{name}" if place else name
            spelt.append(
                self.names.get(place, name if not _underscored(spelt) else snake(name)) + bracket + index
            )
            place += bracket + index
        return ".".join(spelt)

    def wrong(self, text: str) -> Invalid:
        return Invalid(f"{self.spelt}: {text}", field=self.spelt)

    def missing(self, why: str = "") -> Invalid:
        return Invalid(f"{self.spelt} is required{why}.", field=self.spelt)


def snake(name: str) -> str:
    """`bootDiskSizeGb` → `boot_disk_size_gb`."""
    return _CAPITAL.sub(lambda match: "_" + match[0].lower(), name)


def shown(text: str) -> str:
    """A wrong value for a message, in quotes."""
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}…"


def _underscored(spelt: list[str]) -> bool:
    return any("_" in name for name in spelt)
