"""The parts of a search, and the searches that are refused."""

import msgspec
import pytest

from turnout.errors import Invalid
from turnout.job import Search
from turnout.job.algorithms import ALGORITHMS, algorithm_of, budgets, check, grid, param_value
from turnout.job.search import (
    Algorithm,
    Condition,
    Metric,
    Parameter,
    levels,
    only_active,
    parse_skip_rules,
    skips,
)

LR = Parameter("lr", "float", 0.001, 1, scale="log")
BATCH = Parameter("batch", "discrete", values=("64", "16", "32"))
DEPTH = Parameter("depth", "integer", 1, 4)


def search(*parameters: Parameter, algorithm: str = "random", **more) -> Search:
    given = {"metrics": (Metric("loss", "min"),), "algorithms": (Algorithm(algorithm),)} | more
    return Search(parameters=parameters or (LR, BATCH), **given)


def test_a_search_survives_the_store():
    tried = search(LR, BATCH, skip=({"lr": "0.1"},))
    assert msgspec.json.decode(msgspec.json.encode(tried), type=Search) == tried


def test_points_are_spaced_on_their_scale():
    assert levels(Parameter("x", "float", 0, 1, points=5)) == (0, 0.25, 0.5, 0.75, 1)
    assert levels(Parameter("x", "float", 1, 100, scale="log", points=3)) == pytest.approx((1, 10, 100))
    assert levels(Parameter("x", "float", 1, 100, scale="reverse_log", points=3)) == pytest.approx(
        (1, 91, 100)
    )
    assert levels(Parameter("x", "float", 2, 3, points=1)) == (2,)
    assert levels(LR) is None


def test_discrete_values_are_in_the_order_of_numbers_and_keep_their_spelling():
    assert levels(BATCH) == ("16", "32", "64")


def test_skipping_reads_commas_as_and_semicolons_as_or():
    rules = parse_skip_rules(" lr=0.1 , batch=64; batch=128;")
    assert rules == ({"lr": "0.1", "batch": "64"}, {"batch": "128"})
    tried = search(skip=rules)
    assert skips(tried, {"lr": 0.1, "batch": "64"})
    assert skips(tried, {"lr": 0.5, "batch": "128.0"})
    assert not skips(tried, {"lr": 0.1, "batch": "32"})


@pytest.mark.parametrize("text", ["lr", "lr=", "=1", "lr=1,lr=2"])
def test_a_rule_that_cannot_be_read_is_shown(text: str):
    with pytest.raises(ValueError, match=r"lr|=1"):
        parse_skip_rules(text)


def test_a_parameter_without_its_condition_is_left_out():
    momentum = Parameter("momentum", "float", 0, 1, condition=Condition("optimizer", ("sgd",)))
    decay = Parameter("decay", "float", 0, 1, condition=Condition("momentum", (0.5,)))
    parameters = (Parameter("optimizer", "categorical", values=("sgd", "adam")), momentum, decay)
    assert only_active(parameters, {"optimizer": "adam", "momentum": 0.5, "decay": 1}) == {
        "optimizer": "adam"
    }
    assert len(only_active(parameters, {"optimizer": "sgd", "momentum": 0.5, "decay": 1})) == 3


def test_algorithms_run_one_after_the_other():
    both = search(
        algorithms=(Algorithm("tpe_search", {"num_samples": "3"}), Algorithm("random", {"num_samples": 2})),
    )
    assert budgets(both) == (3, 2)
    assert [algorithm_of((3, 2), number) for number in range(5)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    with pytest.raises(Invalid, match="5 trials"):
        algorithm_of((3, 2), 5)


def test_max_trials_limits_the_trials_of_an_algorithm():
    assert budgets(search(max_trials=7)) == (7,)
    assert budgets(search()) == (20,)
    assert budgets(search(max_trials=2, algorithms=(Algorithm("random", {"num_samples": 5}),))) == (2,)


def test_a_grid_has_each_point_once_and_not_those_to_skip():
    extra = Parameter("extra", "categorical", values=("a", "b"), condition=Condition("depth", (1,)))
    tried = search(DEPTH, extra, algorithm="grid", skip=({"depth": "4"},))
    points = list(grid(tried))
    assert points == [{"depth": 1, "extra": "a"}, {"depth": 1, "extra": "b"}, {"depth": 2}, {"depth": 3}]
    assert budgets(tried) == (4,)


WRONG = {
    "twice": search(LR, LR),
    "above its upper bound": search(Parameter("x", "float", 2, 1)),
    "must be above 0": search(Parameter("x", "float", 0, 1, scale="log")),
    "needs a lower and an upper bound": search(Parameter("x", "float", 0)),
    "finite": search(Parameter("x", "float", 0, float("inf"))),
    "whole numbers": search(Parameter("x", "integer", 0.5, 2)),
    "at least one value": search(Parameter("x", "categorical")),
    "must be numbers": search(Parameter("x", "discrete", values=("small", "1"))),
    "1 to 100000 points": search(Parameter("x", "float", 0, 1, points=0)),
    "x has a value twice": search(Parameter("x", "discrete", values=("1", "1.0"))),
    "must come before": search(Parameter("x", "float", 0, 1, condition=Condition("y", (1,)))),
    "cannot have": search(DEPTH, Parameter("x", "float", 0, 1, condition=Condition("depth", (9,)))),
    "there is no search algorithm": search(algorithm="magic"),
    "has no speed": search(algorithms=(Algorithm("random", {"speed": 1}),)),
    "kind is one of ucb, ei, poi": search(algorithms=(Algorithm("bayes_opt_search", {"kind": "lcb"}),)),
    "gamma must be a number from 0 to 1": search(algorithms=(Algorithm("tpe_search", {"gamma": 2}),)),
    "num_samples must be a whole number": search(algorithms=(Algorithm("random", {"num_samples": "many"}),)),
    "number of points for lr": search(algorithm="grid"),
    "more than 100000 points": search(Parameter("x", "integer", 1, 10**6), algorithm="grid"),
    "is not a parameter": search(skip=({"momentum": "1"},)),
    "at least one parameter": Search((), (Metric("loss"),), (Algorithm("random"),)),
    "at least one metric": Search((LR,), (), (Algorithm("random"),)),
    "needs an algorithm": Search((LR,), (Metric("loss"),), ()),
    "at least 1 trial at a time": search(parallel=0),
}


@pytest.mark.parametrize(("words", "tried"), WRONG.items(), ids=WRONG.keys())
def test_what_makes_no_sense_is_said_in_words(words: str, tried: Search):
    with pytest.raises(Invalid, match=words) as caught:
        check(tried)
    assert caught.value.field


@pytest.mark.parametrize("name", ALGORITHMS)
def test_defaults_are_allowed(name: str):
    tried = search(DEPTH, algorithm=name)
    check(tried)
    assert param_value(tried.algorithms[0], "num_samples") == 20


def test_numbers_may_come_as_text():
    algorithm = Algorithm("bayes_opt_search", {"kappa": "3", "seed": "7", "kind": "ei"})
    check(search(algorithms=(algorithm,)))
    assert [param_value(algorithm, name) for name in ("kappa", "seed", "xi")] == [3.0, 7, 0.0]
