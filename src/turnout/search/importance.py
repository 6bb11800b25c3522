"""How much each parameter mattered: functional ANOVA on a forest, by Optuna."""

import math
import warnings
from collections.abc import Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import FanovaImportanceEvaluator
from optuna.trial import create_trial

from turnout.search.axes import Axis, Space
from turnout.search.messages import Weight
from turnout.search.seen import Seen

SEED = 0

optuna.logging.set_verbosity(optuna.logging.ERROR)


def importance(space: Space, trials: Sequence[Seen]) -> list[Weight]:
    """The share of the variance that each parameter explains by itself, the largest first; mean and std over the trees.

    Empty with less than two finished trials, or where all did equally well: then nothing is known.
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
    # evaluate() gives the means alone; what it fitted knows how far the trees agree.
    found = [Weight(name, *evaluator._evaluator.get_importance(n)) for n, name in enumerate(distributions)]
    return sorted(found, key=lambda weight: -weight.mean)


def coordinates(space: Space, trial: Seen) -> dict[str, float]:
    """Where the trial lies on each axis: logarithms where the scale is one, and a place even for what was not there."""
    positions = space.positions(trial.point)
    return {axis.name: coordinate(axis, positions.get(axis.name, axis.resting)) for axis in space.axes}


def coordinate(axis: Axis, position: float) -> float:
    return math.log(position) if axis.log else position


def position(axis: Axis, coordinate: float) -> float:
    return math.exp(coordinate) if axis.log else coordinate


def _distribution(axis: Axis) -> BaseDistribution:
    if axis.form == "choice":
        return CategoricalDistribution(range(len(axis.values)))
    return FloatDistribution(coordinate(axis, axis.low), coordinate(axis, axis.high))
