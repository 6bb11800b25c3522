"""All kinds of parameters, with every algorithm."""

import msgspec
import pytest

from tests.search.in_process import run
from turnout.errors import Invalid
from turnout.job import Search
from turnout.job.algorithms import ALGORITHMS, budgets
from turnout.job.search import Algorithm, Condition, Metric, Parameter, Point
from turnout.search.worker import Study

pytestmark = pytest.mark.slow

MIXED = (
    Parameter("lr", "float", 1e-4, 1, scale="log"),
    Parameter("momentum", "float", 0.5, 0.99, scale="reverse_log"),
    Parameter("layers", "integer", 1, 8),
    Parameter("width", "integer", 8, 512, scale="log"),
    Parameter("batch", "discrete", values=("16", "32", "64")),
    Parameter("dropout", "float", 0, 0.5, points=6),
    Parameter("optimizer", "categorical", values=("sgd", "adam", "lamb")),
    Parameter("nesterov", "categorical", values=(True, False), condition=Condition("optimizer", ("sgd",))),
    Parameter("epochs", "integer", 3, 3),
)
SMOOTH = MIXED[:2]
FINITE = MIXED[4:7]


def search(algorithm: str, parameters: tuple[Parameter, ...] = MIXED, **more) -> Search:
    return Search(
        parameters, (Metric("score"),), (Algorithm(algorithm, {"num_samples": 50, "seed": 3}),), **more
    )


def score(point: Point) -> float | None:
    """The wide networks fail."""
    if float(point.get("width", 0)) > 300:
        return None
    return -abs(float(point.get("lr", 0.1)) - 0.1) - abs(float(point.get("dropout", 0)) - 0.2)


NOT_GRID = [name for name in ALGORITHMS if name != "grid"]


@pytest.mark.parametrize("algorithm", NOT_GRID)
def test_every_value_is_one_that_the_parameter_can_have(algorithm: str):
    trials = 8 if algorithm == "bayes_opt_search" else 30
    points = run(search(algorithm, parallel=2), score, trials, wide=2)
    for point in points:
        assert 1e-4 <= float(point["lr"]) <= 1
        assert 0.5 <= float(point["momentum"]) <= 0.99
        assert point["layers"] in range(1, 9)
        assert point["width"] in range(8, 513)
        assert point["batch"] in ("16", "32", "64")
        assert point["dropout"] in (0, 0.1, 0.2, pytest.approx(0.3), 0.4, 0.5)
        assert ("nesterov" in point) == (point["optimizer"] == "sgd")
        assert point["epochs"] == 3
        assert type(point["layers"]) is int
        assert type(point["lr"]) is float
    assert len({point["optimizer"] for point in points}) > 1
    assert msgspec.json.decode(msgspec.json.encode(points)) == points


@pytest.mark.parametrize("parameters", [MIXED, SMOOTH], ids=["mixed", "smooth"])
@pytest.mark.parametrize("algorithm", NOT_GRID)
def test_a_process_that_knows_the_trials_goes_on_as_the_one_that_made_them(
    algorithm: str, parameters: tuple[Parameter, ...]
):
    trials = 7 if algorithm == "bayes_opt_search" else 26
    tried = search(algorithm, parameters, parallel=3)
    assert run(tried, score, trials, wide=3, forget=True) == run(tried, score, trials, wide=3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_to_be_skipped_is_never_tried(algorithm: str):
    tried = search(algorithm, FINITE, skip=({"batch": "16"}, {"batch": "32", "optimizer": "sgd"}))
    points = run(tried, score, 9)
    assert {point["batch"] for point in points} == {"32", "64"}
    assert not [point for point in points if point["batch"] == "32" and point["optimizer"] == "sgd"]


def test_a_search_fails_if_all_points_are_skipped():
    study = Study(
        search("random", (MIXED[4],), skip=tuple({"batch": size} for size in ("16", "32", "64"))), 1
    )
    with pytest.raises(Invalid, match="to be skipped"):
        study.ask(0)


def test_a_grid_visits_every_point_once():
    tried = search("grid", FINITE)
    points = run(tried, score, sum(budgets(tried)))
    assert len({tuple(point.items()) for point in points}) == len(points) == 50
    whole = msgspec.structs.replace(tried, algorithms=(Algorithm("grid", {"num_samples": 1000}),))
    assert budgets(whole) == (54,)
    assert len({tuple(point.items()) for point in run(whole, score, 54, wide=4)}) == 54


def test_algorithms_come_one_after_another_and_begin_anew():
    one = search("tpe_search")
    three = msgspec.structs.replace(
        one,
        algorithms=(
            Algorithm("random", {"num_samples": 3, "seed": 3}),
            Algorithm("tpe_search", {"num_samples": 25, "seed": 3}),
            Algorithm("anneal_search", {"num_samples": 2, "seed": 3}),
        ),
    )
    assert run(three, score, 30)[3:28] == run(one, score, 25)


def test_a_space_with_one_point():
    assert run(search("bayes_opt_search", MIXED[-1:]), score, 2) == [{"epochs": 3}] * 2


def test_a_logarithmic_scale_is_even_in_the_exponent():
    points = run(search("random", SMOOTH), score, 50)
    small = sum(float(point["lr"]) < 1e-2 for point in points)
    near_the_top = sum(float(point["momentum"]) > 0.8 for point in points)
    assert 15 < small < 35
    assert near_the_top > 20
