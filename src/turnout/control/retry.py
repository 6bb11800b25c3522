"""Whether a job, or one of its replicas, may start over."""

from collections.abc import Sequence
from typing import NamedTuple

from turnout.job import Past, Policy, Reason, Replica, Retry


class Again(NamedTuple):
    """The `number`th of `times` restarts that a rule allows; `times` is 0 where they are not counted."""

    number: int
    times: int

    def __str__(self) -> str:
        return f"retry {self.number} of {self.times}" if self.times else "not counted as a retry"


UNCOUNTED = Again(0, 0)
FINAL = frozenset({Reason.SUCCEEDED, Reason.STOPPED})
"""No rule undoes these."""


def another_go(policy: Policy, past: Sequence[Past], reason: Reason, code: int | None = None) -> Again | None:
    """What lets a job start over whose attempt ended for this reason; None: nothing does.

    `code` is how the replica exited that decided it, see Retry. Each restart is charged to the first rule that covers
    it and has some left, so that a rule for few reasons and one for all reasons add up.
    """
    if reason is Reason.PREEMPTED:
        return _put_back(policy, past)
    if not policy.retries or reason in FINAL:
        return None
    used = [0] * len(policy.retries)
    for one in past:
        if (
            one.reason is not Reason.PREEMPTED
            and (rule := _rule_for(policy.retries, used, one.reason, one.code)) is not None
        ):
            used[rule] += 1
    rule = _rule_for(policy.retries, used, reason, code)
    return None if rule is None else Again(used[rule] + 1, policy.retries[rule].times)


def _put_back(policy: Policy, past: Sequence[Past]) -> Again | None:
    if policy.preemptions is None:
        return UNCOUNTED
    before = sum(one.reason is Reason.PREEMPTED for one in past)
    return Again(before + 1, policy.preemptions) if before < policy.preemptions else None


def in_place(policy: Policy, replica: Replica, reason: Reason) -> Again | None:
    """What lets a replica that ended for this reason start again where it was; None: nothing does."""
    rule = policy.in_place
    if rule is None or replica.restarts >= rule.times or not rule.covers(reason, replica.shell_code):
        return None
    return Again(replica.restarts + 1, rule.times)


def _rule_for(rules: tuple[Retry, ...], used: list[int], reason: Reason, code: int | None) -> int | None:
    for number, rule in enumerate(rules):
        if used[number] < rule.times and rule.covers(reason, code):
            return number
    return None
