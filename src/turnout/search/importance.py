"""Parameter importance: functional ANOVA on a random forest, by Optuna."""

import math
import warnings
from collections.abc import Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import FanovaImportanceEvaluator
from optuna.trial import create_trial

from turnout.search.axes import Axis, Space
from turnout.search.messages import Importance
from turnout.search.suggester import KnownTrial

SEED = 0

optuna.logging.set_verbosity(optuna.logging.ERROR)


def importance(space: Space, trials: Sequence[KnownTrial]) -> list[Importance]:
    """The share of the variance that each parameter explains by itself, the largest first; mean and std over the trees.

    Empty with fewer than two results, or if all results are equal.
    """
    done = [trial for trial in trials if trial.value is not None]
    if len(done) < 2 or not space.axes or len({trial.value for trial in done}) == 1:
        return []
    # In the order of their names, as Optuna fits them.
    distributions = {a.name: _distribution(a) for a in sorted(space.axes, key=lambda axis: axis.name)}
    study = optuna.create_study()
    for trial in done:
        params = coordinates(space, trial)
        study.add_trial(create_trial(value=trial.value, params=params, distributions=distributions))
    evaluator = FanovaImportanceEvaluator(seed=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            evaluator.evaluate(study, params=list(distributions))
        except RuntimeError:
            # No tree has any variance: too few trials that differ.
            return []
    # evaluate() returns only the means; the fitted evaluator has the standard deviations too.
    found = [
        Importance(name, *evaluator._evaluator.get_importance(n)) for n, name in enumerate(distributions)
    ]
    return sorted(found, key=lambda weight: -weight.mean)


def coordinates(space: Space, trial: KnownTrial) -> dict[str, float]:
    """The trial's coordinate on each axis, on a log scale where the axis has one; inactive parameters get a default."""
    positions = space.positions(trial.point)
    return {
        axis.name: coordinate(axis, positions.get(axis.name, axis.inactive_position)) for axis in space.axes
    }


def coordinate(axis: Axis, position: float) -> float:
    return math.log(position) if axis.log else position


def position(axis: Axis, coordinate: float) -> float:
    return math.exp(coordinate) if axis.log else coordinate


def _distribution(axis: Axis) -> BaseDistribution:
    if axis.form == "choice":
        return CategoricalDistribution(range(len(axis.values)))
    return FloatDistribution(coordinate(axis, axis.low), coordinate(axis, axis.high))
