"""What the commands' errors mean: whether Slurm refused a job, or did not answer."""

import re

from turnout.engines import Refused, Unreachable
from turnout.engines.slurm.commands import Answer

UNKNOWN_JOB = "Invalid job id specified"

# Parts of messages after which the job may be there or not, or may be accepted later.
_NO_ANSWER = re.compile(
    r"Unable to contact|Socket timed out|Zero Bytes were transmitted|Connection (?:refused|reset|timed out|closed)"
    r"|connection failure|connect failure|Transport endpoint|Unable to resolve|standby mode|try again later"
    r"|temporarily (?:unable|unavailable)|authentication|Munge|munge|configuration source|Could not resolve"
    r"|Connection aborted|in the midst of|shutting down|Broken pipe|I/O error writing",
    re.IGNORECASE,
)
# Limits of the number of jobs in the queue, such as QOSMaxSubmitJobPerUserLimit: there is room again later.
_FULL = re.compile(r"\b\w+Submit\w*Limit\b")
_NOT_FITTING = re.compile(
    r"node configuration is not available|partition configuration not available|node count specification invalid"
    r"|Memory specification can not be satisfied|more processors requested|CPU count per node can not be satisfied"
    r"|generic resource \(gres\) specification|resources are not available",
    re.IGNORECASE,
)


def refusal(answer: Answer) -> Refused | Unreachable:
    """The error for an sbatch that failed."""
    if _NO_ANSWER.search(answer.errors) or not _lines(answer):
        return answer.unreachable()
    if _FULL.search(answer.errors):
        return Unreachable(f"Slurm takes no further job at the moment: {_words(answer)}")
    return Refused(f"Slurm refused the job: {_words(answer)}")


def does_not_fit(answer: Answer) -> bool:
    """Whether no node is large enough."""
    return not answer.ok and bool(_NOT_FITTING.search(answer.errors))


def is_unknown_job(answer: Answer) -> bool:
    return not answer.ok and UNKNOWN_JOB in answer.errors


def _words(answer: Answer) -> str:
    prefix = re.compile("^sbatch: (?:error: |fatal: )?(?:Batch job submission failed: )?")
    return "; ".join(prefix.sub("", line) for line in _lines(answer))[:500]


def _lines(answer: Answer) -> list[str]:
    """What sbatch itself said, without what ssh or a shell did."""
    return [line.strip() for line in answer.errors.splitlines() if line.startswith("sbatch: ")]
