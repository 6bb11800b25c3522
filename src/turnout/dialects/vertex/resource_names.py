"""Resource names, and the number that Google gives a project besides its id."""

import hashlib
import re
from typing import NamedTuple

_JOB = re.compile(r"projects/([^/]+)/locations/([^/]+)/customJobs/([0-9]{1,19})")


class JobName(NamedTuple):
    project: str
    location: str
    id: int

    def __str__(self) -> str:
        return f"projects/{self.project}/locations/{self.location}/customJobs/{self.id}"

    @staticmethod
    def parse(text: str) -> "JobName | None":
        match = _JOB.fullmatch(text)
        return match and JobName(match[1], match[2], int(match[3]))


def project_number(project: str) -> str:
    """Twelve digits that are computed from the id. If the id is a number, the project has that number."""
    if project.isascii() and project.isdecimal():
        return project
    digest = hashlib.blake2b(project.encode(), digest_size=8, person=b"project").digest()
    return str(10**11 + int.from_bytes(digest) % (9 * 10**11))
