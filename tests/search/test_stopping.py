"""Early stopping ends trials that do badly, and no others."""

import msgspec
import pytest

from turnout.job import Search
from turnout.job.search import Algorithm, Metric, Parameter, Stopping
from turnout.search.messages import MetricValue
from turnout.search.stopping import should_stop
from turnout.search.suggester import KnownTrial

SEARCH = Search((Parameter("x", "float", 0, 1),), (Metric("loss", "min"),), (Algorithm("random"),))
SECOND = 1_000_000_000


def judge(rule: Stopping | None, others: list[list[float]], mine: list[float], every: int = 1) -> bool:
    """Each of the others has a value for each step, and the last one is its result."""
    curves = {
        n: [MetricValue(step, step * SECOND, v) for step, v in enumerate(c)] for n, c in enumerate(others)
    }
    trials = {n: KnownTrial(n, {"x": 0.5}, curve[-1], done=True) for n, curve in enumerate(others)}
    number = len(others)
    curves[number] = [
        MetricValue(step * every, 9 * SECOND + step * every * SECOND, v) for step, v in enumerate(mine)
    ]
    trials[number] = KnownTrial(number, {"x": 0.1})
    return should_stop(msgspec.structs.replace(SEARCH, stopping=rule), number, curves, trials)


FALLING = [[9 - n / 10 - step for step in range(8)] for n in range(6)]
BAD = [9.5, 9.4, 9.3, 9.2, 9.1, 9.0]
GOOD = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0]


@pytest.mark.parametrize("kind", ["median", "decay_curve"])
@pytest.mark.parametrize("by", ["steps", "seconds"])
def test_a_bad_trial_is_stopped_and_a_good_one_is_not(kind: str, by: str):
    rule = msgspec.convert({"kind": kind, "by": by}, Stopping)
    assert judge(rule, FALLING, BAD)
    assert not judge(rule, FALLING, GOOD)


@pytest.mark.parametrize("kind", ["median", "decay_curve"])
def test_no_trial_is_stopped_before_enough_others_have_succeeded(kind: str):
    rule = msgspec.convert({"kind": kind, "startup": 7}, Stopping)
    assert not judge(rule, FALLING, BAD)


@pytest.mark.parametrize("kind", ["median", "decay_curve"])
def test_no_trial_is_stopped_while_warming_up(kind: str):
    rule = msgspec.convert({"kind": kind, "warmup": 10}, Stopping)
    assert not judge(rule, FALLING, BAD)


def test_a_trial_is_compared_with_the_last_values_of_the_others_by_then():
    rule = Stopping("median")
    assert judge(rule, FALLING, [9.5, 9.4], every=3)
    assert not judge(rule, FALLING, [9.5, 5.0], every=3)


def test_without_a_rule_or_a_report_no_trial_is_stopped():
    assert not judge(None, FALLING, BAD)
    assert not judge(Stopping("median"), FALLING, [])
