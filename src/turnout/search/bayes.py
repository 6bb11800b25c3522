"""`bayes_opt_search`, by bayesian-optimization.

The library draws from one generator. If all parameters are continuous, each suggestion takes the same number of draws,
so the generator can be set to its position before any trial, and the points are those of `maximize`. With integers,
levels or choices the number of draws depends on earlier results; there a new generator is seeded for each trial.
"""

import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from bayes_opt import BayesianOptimization, acquisition
from bayes_opt.acquisition import AcquisitionFunction
from numpy.random import RandomState

from turnout.job.algorithms import param_value
from turnout.job.search import Algorithm, Point
from turnout.search.axes import Axis, Space
from turnout.search.suggester import KnownTrial, values

INIT_POINTS = 5
"""The default of `maximize`."""
_RESTARTS = 5
_SAMPLES = 10_000
_CHUNK = 1_000_000
_LARGEST_TARGET = 1e100


class Bayes:
    def __init__(self, space: Space, algorithm: Algorithm, seed: int, maximize: bool) -> None:
        self._space = space
        self._acquisition = functools.partial(_acquisition, algorithm)
        self._sign = 1.0 if maximize else -1.0
        self._seed = seed
        self._bounds = {axis.name: _bounds(axis) for axis in space.axes}
        self._continuous = all(_continuous(axis) for axis in space.axes)
        self._advanced: tuple[int, RandomState] = (0, RandomState(seed))

    def suggest(self, number: int, seen: Sequence[KnownTrial], attempt: int) -> Point:
        generator = self._generator(number, attempt)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer = BayesianOptimization(
                None, self._bounds, self._acquisition(), random_state=generator, verbose=0
            )
            # The model would suggest a skipped point again, so a random one replaces it.
            if number < INIT_POINTS or attempt or not values(seen):
                found = optimizer.random_sample(1)[0]
            else:
                self._register(optimizer, seen)
                found = _suggestion(optimizer)
        return self._space.point({axis.name: _position(axis, found[axis.name]) for axis in self._space.axes})

    def _register(self, optimizer: BayesianOptimization, seen: Sequence[KnownTrial]) -> None:
        """A running trial counts as the best so far, like the library's ConstantLiar; a failed one as the worst."""
        known = [self._target(value) for value in values(seen)]
        best, worst = max(known), min(known)
        for trial in sorted(seen, key=lambda trial: not trial.done):
            guess = worst if trial.done else best
            self._add(optimizer, trial, guess if trial.value is None else self._target(trial.value))

    def _target(self, value: float) -> float:
        """The value to maximise. It is limited, because its square must be finite."""
        return self._sign * min(max(value, -_LARGEST_TARGET), _LARGEST_TARGET)

    def _add(self, optimizer: BayesianOptimization, trial: KnownTrial, target: float) -> None:
        positions = self._space.positions(trial.point)
        coordinates: dict[str, Any] = {axis.name: _coordinate(axis, positions) for axis in self._space.axes}
        if optimizer.space.params_to_array(coordinates) not in optimizer.space:
            optimizer.register(coordinates, target)

    def _generator(self, number: int, attempt: int) -> RandomState:
        if attempt or not self._continuous:
            return RandomState(
                int(np.random.SeedSequence([self._seed, number, attempt]).generate_state(1)[0])
            )
        position, generator = self._advanced
        target = _draws_before(number, len(self._space.axes))
        if target < position:
            position, generator = 0, RandomState(self._seed)
        while position < target:
            step = min(target - position, _CHUNK)
            generator.random_sample(step)
            position += step
        self._advanced = target, generator
        copy = RandomState()
        copy.set_state(generator.get_state())
        return copy


def _suggestion(optimizer: BayesianOptimization) -> dict[str, Any]:
    try:
        return optimizer.suggest()
    except RuntimeError:
        # Differential evolution, which it uses for parameters that are not continuous, did not converge.
        return optimizer.random_sample(1)[0]


def _draws_before(number: int, dimensions: int) -> int:
    """A random point takes one draw per dimension. A suggestion takes 10 000 such points and a draw per restart."""
    suggestions = max(0, number - INIT_POINTS)
    return min(number, INIT_POINTS) * dimensions + suggestions * (_RESTARTS + _SAMPLES * dimensions)


def _acquisition(algorithm: Algorithm) -> AcquisitionFunction:
    xi = float(param_value(algorithm, "xi"))
    match param_value(algorithm, "kind"):
        case "ei":
            return acquisition.ExpectedImprovement(xi=xi)
        case "poi":
            return acquisition.ProbabilityOfImprovement(xi=xi)
        case _:
            return acquisition.UpperConfidenceBound(kappa=float(param_value(algorithm, "kappa")))


def _continuous(axis: Axis) -> bool:
    return axis.form == "real" or axis.log


def _bounds(axis: Axis) -> Any:
    if axis.form == "choice":
        return tuple(str(index) for index in range(len(axis.values)))
    if axis.log:
        margin = 0.5 if axis.form == "whole" else 0
        return math.log(axis.low - margin), math.log(axis.high + margin)
    return (axis.low, axis.high) if axis.form == "real" else (int(axis.low), int(axis.high), int)


def _position(axis: Axis, coordinate: Any) -> float:
    return math.exp(float(coordinate)) if axis.log else float(coordinate)


def _coordinate(axis: Axis, positions: dict[str, float]) -> float | str | int:
    position = positions.get(axis.name, axis.inactive_position)
    if axis.form == "choice":
        return str(round(position))
    if axis.log:
        return math.log(position)
    return position if axis.form == "real" else round(position)
