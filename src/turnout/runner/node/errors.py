"""Why a runner cannot go on.

RunnerError
├── Fenced       another runner holds the replica: run nothing, send nothing
├── Gone         the attempt does not exist any more
├── Refused      the service refuses a call, and would again
├── Unreachable  the service did not answer for too long
└── Unusable     the arguments or the environment of the runner are wrong

StagingError     the inputs of the replica cannot be fetched
NotStarted       the program cannot be run
Cancelled        nobody needs what was being prepared any more
"""

from __future__ import annotations

from typing import Optional


class RunnerError(Exception):
    """The message is for people who read the cluster's own output of the runner. It contains no secret."""


class Fenced(RunnerError):
    pass


class Gone(RunnerError):
    pass


class Refused(RunnerError):
    pass


class Unreachable(RunnerError):
    pass


class Unusable(RunnerError):
    pass


class StagingError(Exception):
    """The message is for the user of the job."""


class Cancelled(Exception):
    pass


class NotStarted(Exception):
    """The message is for the user of the job. `code` is the exit code that a shell would give."""

    def __init__(self, cause: str, code: Optional[int], message: str) -> None:
        super().__init__(message)
        self.cause = cause
        self.code = code
