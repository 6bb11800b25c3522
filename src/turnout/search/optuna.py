"""`default` (Optuna's tree-structured Parzen estimator), `random` and `grid`, by Optuna.

Its samplers have their own generators. In a space without conditions each trial takes the same number of draws, so the
generator can be set to its position before any trial; otherwise a new one is seeded for each trial.
"""

import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import optuna
from numpy.random import RandomState
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import GridSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from turnout.job.algorithms import LARGEST_GRID
from turnout.job.search import Point, Search, levels, only_active, skips
from turnout.search.axes import Axis, Space
from turnout.search.suggester import KnownTrial

_STARTUP = 10
_CANDIDATES = 24

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Optuna:
    def __init__(self, space: Space, name: str, seed: int, maximize: bool, parallel: int) -> None:
        self._space = space
        self._seed = seed
        # The first results come in batches of `parallel`, so the sampler counts whole batches as startup trials.
        self._startup = math.ceil(_STARTUP / parallel) * parallel
        self._distributions = {axis.name: distribution(axis) for axis in space.axes}
        self._random = RandomSampler(seed=seed)
        self._parzen: TPESampler | None = None
        if name == "default":
            # With conditional parameters, only groups of parameters that occur together can be modelled.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                self._parzen = TPESampler(
                    seed=seed, n_startup_trials=_STARTUP, n_ei_candidates=_CANDIDATES, group=space.conditional
                )
            self._random = self._parzen._random_sampler
        self._direction: Literal["maximize", "minimize"] = "maximize" if maximize else "minimize"
        # A mirrored value does not map back to exactly the same position, so the study is built again each time.
        self._keeps_study = not any(axis.mirrored for axis in space.axes)
        self._new_study()

    def suggest(self, number: int, seen: Sequence[KnownTrial], attempt: int) -> Point:
        if not self._keeps_study:
            self._new_study()
        self._learn(seen)
        self._set_generators(number, attempt)
        trial = self._study.ask()
        free: Point = {}
        for axis in self._space.axes:
            if self._space.active(axis.name, free):
                free[axis.name] = axis.value(_suggest(trial, axis))
        if number in self._study_numbers:
            self._study.tell(self._study_numbers[number], state=TrialState.FAIL)
        self._study_numbers[number] = trial.number
        self._unfinished.add(number)
        inactive = {axis.name: axis.value(axis.inactive_position) for axis in self._space.axes}
        return self._space.complete(inactive | free)

    def _new_study(self) -> None:
        self._study = optuna.create_study(sampler=self._parzen or self._random, direction=self._direction)
        self._study_numbers: dict[int, int] = {}
        """Our trial number → the study's, which also counts skipped points."""
        self._unfinished: set[int] = set()

    def _learn(self, seen: Sequence[KnownTrial]) -> None:
        """Add these trials to the study. A study that is built from all trials at once would be the same."""
        for trial in seen:
            if trial.number not in self._study_numbers:
                self._study_numbers[trial.number] = len(self._study.get_trials(deepcopy=False))
                self._study.add_trial(_frozen_trial(self._space, self._distributions, trial))
                if not trial.done:
                    self._unfinished.add(trial.number)
            elif trial.done and trial.number in self._unfinished:
                self._unfinished.discard(trial.number)
                self._study.tell(self._study_numbers[trial.number], trial.value, state=_state(trial))

    def _set_generators(self, number: int, attempt: int) -> None:
        """Set the generators to their position before this trial."""
        draws = sum(len(axis.values) if axis.form == "choice" else 1 for axis in self._space.axes)
        parzen_draws = max(0, number - self._startup) * _CANDIDATES * (1 + len(self._space.axes))
        first, second = (
            _generator_after(self._seed, number * draws),
            _generator_after(self._seed, parzen_draws),
        )
        if attempt or self._space.conditional:
            first, second = (RandomState(_derived_seed(self._seed, number, attempt, n)) for n in (0, 1))
        self._random._rng.rng.set_state(first.get_state())
        if self._parzen:
            self._parzen._rng.rng.set_state(second.get_state())


class Grid:
    """Every point once, in the shuffled order of GridSampler."""

    def __init__(self, search: Search, seed: int) -> None:
        self._search = search
        self._points = self._shuffled_points(seed)
        self._known_points: list[Point] = []

    def suggest(self, number: int, seen: Sequence[KnownTrial], attempt: int) -> Point:
        self._known_points += itertools.islice(self._points, number + 1 - len(self._known_points))
        return self._known_points[number]

    def _shuffled_points(self, seed: int) -> Iterator[Point]:
        choices = {parameter.name: levels(parameter) or () for parameter in self._search.parameters}
        study = optuna.create_study(sampler=GridSampler(choices, seed=seed))
        distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in choices.items()
        }
        known: set[tuple[Any, ...]] = set()
        for _ in range(min(math.prod(map(len, choices.values())), LARGEST_GRID)):
            chosen = study.ask(distributions).params
            in_order = {name: chosen[name] for name in choices}
            point = only_active(self._search.parameters, in_order)
            key = tuple(point.items())
            if key not in known and not skips(self._search, point):
                known.add(key)
                yield point


def _frozen_trial(space: Space, distributions: dict[str, BaseDistribution], trial: KnownTrial) -> FrozenTrial:
    positions = space.positions(trial.point)
    return create_trial(
        state=_state(trial),
        value=trial.value,
        params=positions,
        distributions={name: distributions[name] for name in positions},
    )


def distribution(axis: Axis) -> BaseDistribution:
    match axis.form:
        case "real":
            return FloatDistribution(axis.low, axis.high, log=axis.log)
        case "whole" | "level":
            return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
        case "choice":
            return CategoricalDistribution(range(len(axis.values)))


def _suggest(trial: optuna.Trial, axis: Axis) -> float:
    match axis.form:
        case "real":
            return trial.suggest_float(axis.name, axis.low, axis.high, log=axis.log)
        case "whole" | "level":
            return trial.suggest_int(axis.name, int(axis.low), int(axis.high), log=axis.log)
        case "choice":
            return trial.suggest_categorical(axis.name, range(len(axis.values)))


def _state(trial: KnownTrial) -> TrialState:
    if not trial.done:
        return TrialState.RUNNING
    return TrialState.FAIL if trial.value is None else TrialState.COMPLETE


def _generator_after(seed: int, draws: int) -> RandomState:
    generator = RandomState(seed)
    generator.random_sample(draws)
    return generator


def _derived_seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1)[0])
