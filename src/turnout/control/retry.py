"""Decides whether a job is retried, or one of its replicas restarted."""

from collections.abc import Sequence
from typing import NamedTuple

from turnout.job import PastAttempt, Policy, Reason, Replica, Retry


class RetryNumber(NamedTuple):
    """The `number`th of the `times` retries or restarts that a rule allows; `times` is 0 if they are not counted."""

    number: int
    times: int

    def __str__(self) -> str:
        return f"retry {self.number} of {self.times}" if self.times else "not counted as a retry"


UNCOUNTED = RetryNumber(0, 0)
FINAL = frozenset({Reason.SUCCEEDED, Reason.STOPPED})
"""A job that ended for one of these reasons is never retried."""


def next_retry(
    policy: Policy, past: Sequence[PastAttempt], reason: Reason, code: int | None = None
) -> RetryNumber | None:
    """The rule that allows a retry after an attempt that ended for this reason, or None.

    `code` is the exit code of the deciding replica, see Retry. Each retry is charged to the first rule that covers it
    and has retries left, so that a rule for few reasons and one for all reasons add up.
    """
    if reason is Reason.PREEMPTED:
        return _retry_after_preemption(policy, past)
    if not policy.retries or reason in FINAL:
        return None
    used = [0] * len(policy.retries)
    for attempt in past:
        if (
            attempt.reason is not Reason.PREEMPTED
            and (rule := _rule_for(policy.retries, used, attempt.reason, attempt.code)) is not None
        ):
            used[rule] += 1
    rule = _rule_for(policy.retries, used, reason, code)
    return None if rule is None else RetryNumber(used[rule] + 1, policy.retries[rule].times)


def _retry_after_preemption(policy: Policy, past: Sequence[PastAttempt]) -> RetryNumber | None:
    if policy.preemptions is None:
        return UNCOUNTED
    before = sum(attempt.reason is Reason.PREEMPTED for attempt in past)
    return RetryNumber(before + 1, policy.preemptions) if before < policy.preemptions else None


def next_restart(policy: Policy, replica: Replica, reason: Reason) -> RetryNumber | None:
    """The rule that allows a restart in place of a replica that ended for this reason, or None."""
    rule = policy.in_place
    if rule is None or replica.restarts >= rule.times or not rule.covers(reason, replica.shell_code):
        return None
    return RetryNumber(replica.restarts + 1, rule.times)


def _rule_for(rules: tuple[Retry, ...], used: list[int], reason: Reason, code: int | None) -> int | None:
    for number, rule in enumerate(rules):
        if used[number] < rule.times and rule.covers(reason, code):
            return number
    return None
