"""With the same seed, the points are those of the library alone, however often its process is replaced."""

import pytest

from bench.alone import ALONE, PROBLEMS, alone
from tests.search.in_process import run, space

pytestmark = pytest.mark.slow

BRANIN, HARTMANN, _ = PROBLEMS
TRIALS = {"bayes_opt_search": 9, "tpe_search": 24, "anneal_search": 24, "default": 24, "random": 24}


@pytest.mark.parametrize("wide", [1, 4])
@pytest.mark.parametrize("algorithm", ALONE)
def test_between_bounds_every_point_is_the_librarys_own(algorithm: str, wide: int):
    trials = TRIALS[algorithm]
    search = space(BRANIN.bounds, algorithm, wide, seed=5, num_samples=trials)
    theirs = [point for point, _ in alone(algorithm, BRANIN, trials, 5, wide)]
    assert run(search, BRANIN.objective, trials, wide=wide, forget=True) == theirs


def test_another_seed_gives_other_points():
    first, second = (
        run(space(HARTMANN.bounds, "default", seed=seed), HARTMANN.objective, 3) for seed in (1, 2)
    )
    assert first != second


@pytest.mark.parametrize("kind", ["ei", "poi"])
def test_the_acquisition_function_is_the_one_that_was_named(kind: str):
    from bayes_opt import BayesianOptimization
    from bayes_opt.acquisition import ExpectedImprovement, ProbabilityOfImprovement

    chosen = {"ei": ExpectedImprovement, "poi": ProbabilityOfImprovement}[kind](xi=0.05)
    library = BayesianOptimization(
        lambda **point: BRANIN.objective(point), BRANIN.bounds, chosen, random_state=2, verbose=0
    )
    library.maximize(5, 2)
    search = space(BRANIN.bounds, "bayes_opt_search", kind=kind, xi=0.05, seed=2)
    assert run(search, BRANIN.objective, 7) == [one["params"] for one in library.res]
