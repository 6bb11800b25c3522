"""The search libraries used as their documentation shows, and the problems they are tried on."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Objective = Callable[[dict[str, Any]], float]
Points = list[tuple[dict[str, float], float]]


class Problem(NamedTuple):
    """A function to maximize."""

    name: str
    bounds: dict[str, tuple[float, float]]
    objective: Objective


def branin(point: dict[str, Any]) -> float:
    x, y = point["x"], point["y"]
    bend = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return -(bend**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(point: dict[str, Any]) -> float:
    x = np.array([point[f"x{number}"] for number in range(6)])
    return float(_ALPHA @ np.exp(-np.sum(_A * (x - _P) ** 2, axis=1)))


@functools.cache
def _digits() -> list[Any]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    return train_test_split(images, labels, train_size=500, test_size=700, random_state=0)


@functools.cache
def _accuracy(log_c: float, log_gamma: float) -> float:
    from sklearn.svm import SVC

    known, unknown, known_labels, unknown_labels = _digits()
    machine = SVC(C=10**log_c).set_params(gamma=10**log_gamma)
    return machine.fit(known, known_labels).score(unknown, unknown_labels)


def digits(point: dict[str, Any]) -> float:
    """The accuracy of a support vector machine on scikit-learn's handwritten digits."""
    return float(_accuracy(point["log_c"], point["log_gamma"]))


PROBLEMS = (
    Problem("Branin", {"x": (-5.0, 10.0), "y": (0.0, 15.0)}, branin),
    Problem("Hartmann-6", {f"x{number}": (0.0, 1.0) for number in range(6)}, hartmann),
    Problem("digits", {"log_c": (-3.0, 3.0), "log_gamma": (-7.0, 0.0)}, digits),
)


def alone(algorithm: str, problem: Problem, trials: int, seed: int, wide: int) -> Points:
    """The points that the library chooses alone, `wide` trials at a time: ask for that many, then report all."""
    return ALONE[algorithm](problem, trials, seed, wide)


def _bayes(problem: Problem, trials: int, seed: int, wide: int) -> Points:
    from bayes_opt import BayesianOptimization, acquisition

    bound = acquisition.UpperConfidenceBound(kappa=2.5)
    found: Points = []

    def objective(**point: Any) -> float:
        found.append(({name: float(value) for name, value in point.items()}, problem.objective(point)))
        return found[-1][1]

    if wide == 1:
        optimizer = BayesianOptimization(objective, problem.bounds, bound, random_state=seed, verbose=0)
        optimizer.maximize(init_points=5, n_iter=trials - 5)
        return found
    liar = acquisition.ConstantLiar(bound)
    optimizer = BayesianOptimization(None, problem.bounds, liar, random_state=seed, verbose=0)
    waiting = optimizer.random_sample(5)
    liar.dummies += [optimizer.space.params_to_array(point) for point in waiting]
    while len(found) < trials:
        while len(waiting) < min(wide, trials - len(found)):
            waiting.append(optimizer.suggest())
        for point in waiting[:wide]:
            optimizer.register(point, objective(**point))
        del waiting[:wide]
    return found


def _hyperopt(name: str, problem: Problem, trials: int, seed: int, wide: int) -> Points:
    from hyperopt import STATUS_OK, Trials, anneal, fmin, hp, tpe
    from hyperopt.base import JOB_STATE_DONE, Domain

    space = {name: hp.uniform(name, low, high) for name, (low, high) in problem.bounds.items()}
    suggest = functools.partial(tpe.suggest, verbose=False) if name == "tpe_search" else anneal.suggest
    generator = np.random.default_rng(seed)
    known = Trials()
    if wide == 1:
        fmin(
            lambda point: -problem.objective(point), space, suggest, trials,
            trials=known, rstate=generator, show_progressbar=False, verbose=False,
        )  # fmt: skip
    domain = Domain(lambda point: 0, space)
    while len(known.trials) < trials:
        batch: list[dict] = []
        for _ in range(min(wide, trials - len(known.trials))):
            new = suggest(known.new_trial_ids(1), domain, known, generator.integers(2**31 - 1))
            known.insert_trial_docs(new)
            known.refresh()
            batch.append(known.trials[-1])
        for document in batch:
            point = {name: found[0] for name, found in document["misc"]["vals"].items()}
            document["result"] = {"status": STATUS_OK, "loss": -problem.objective(point)}
            document["state"] = JOB_STATE_DONE
        known.refresh()
    return [
        ({name: float(v[0]) for name, v in one["misc"]["vals"].items()}, -one["result"]["loss"])
        for one in known.trials
    ]


def _optuna(name: str, problem: Problem, trials: int, seed: int, wide: int) -> Points:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler if name == "default" else optuna.samplers.RandomSampler
    study = optuna.create_study(sampler=sampler(seed=seed), direction="maximize")

    def objective(trial: optuna.Trial) -> float:
        point = {name: trial.suggest_float(name, low, high) for name, (low, high) in problem.bounds.items()}
        return problem.objective(point)

    if wide == 1:
        study.optimize(objective, trials)
    while len(study.trials) < trials:
        batch = [study.ask() for _ in range(min(wide, trials - len(study.trials)))]
        asked = [(trial, objective(trial)) for trial in batch]
        for trial, value in asked:
            study.tell(trial, value)
    return [(dict(trial.params), trial.values[0]) for trial in study.trials]


ALONE: dict[str, Callable[[Problem, int, int, int], Points]] = {
    "bayes_opt_search": _bayes,
    "tpe_search": functools.partial(_hyperopt, "tpe_search"),
    "anneal_search": functools.partial(_hyperopt, "anneal_search"),
    "default": functools.partial(_optuna, "default"),
    "random": functools.partial(_optuna, "random"),
}
