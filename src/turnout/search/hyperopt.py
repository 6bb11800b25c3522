"""`tpe_search` and `anneal_search`, by hyperopt.

A suggestion depends only on the trials and on a seed. Like `fmin`, this draws one seed for each suggestion from a
generator.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import hyperopt
import numpy as np
from hyperopt import anneal, hp, rand, tpe
from hyperopt.base import JOB_STATE_DONE, JOB_STATE_NEW, STATUS_FAIL, STATUS_NEW, STATUS_OK, Domain

from turnout.job.algorithms import param_value
from turnout.job.search import Algorithm, Point
from turnout.search.axes import Axis, Space
from turnout.search.suggester import KnownTrial

_LARGEST_SEED = 2**31 - 1
_MODEL_ATTEMPTS = 10
"""After this many skipped points of a trial, points are drawn at random."""


class Hyperopt:
    def __init__(self, space: Space, algorithm: Algorithm, seed: int, maximize: bool) -> None:
        self._space = space
        self._suggest = _algorithm(algorithm)
        self._sign = -1.0 if maximize else 1.0
        self._domain = Domain(_never_called, {axis.name: _distribution(axis) for axis in space.axes})
        self._seed = seed
        self._generator = np.random.default_rng(seed)
        self._seeds: list[int] = []
        self._documents: dict[int, tuple[KnownTrial, dict[str, Any]]] = {}

    def suggest(self, number: int, seen: Sequence[KnownTrial], attempt: int) -> Point:
        trials = hyperopt.trials_from_docs([self._document_of(trial) for trial in seen], validate=False)
        suggest = self._suggest if attempt < _MODEL_ATTEMPTS else rand.suggest
        (document,) = suggest([number], self._domain, trials, self._seed_of(number, attempt))
        return self._space.point({name: found[0] for name, found in document["misc"]["vals"].items()})

    def _seed_of(self, number: int, attempt: int) -> int:
        if attempt:
            return int(np.random.default_rng([self._seed, number, attempt]).integers(_LARGEST_SEED))
        while len(self._seeds) <= number:
            self._seeds.append(int(self._generator.integers(_LARGEST_SEED)))
        return self._seeds[number]

    def _document_of(self, trial: KnownTrial) -> dict[str, Any]:
        before, document = self._documents.get(trial.number, (None, {}))
        if before != trial:
            document = self._new_document(trial)
            self._documents[trial.number] = trial, document
        return document

    def _new_document(self, trial: KnownTrial) -> dict[str, Any]:
        """An inactive parameter has no value: that is how hyperopt tells the branches of a space apart."""
        positions = self._space.positions(trial.point)
        names = [axis.name for axis in self._space.axes]
        result: dict[str, Any] = {"status": STATUS_FAIL if trial.done else STATUS_NEW}
        if trial.value is not None:
            result = {"status": STATUS_OK, "loss": self._sign * trial.value}
        return {
            "tid": trial.number,
            "spec": None,
            "result": result,
            "misc": {
                "tid": trial.number,
                "cmd": self._domain.cmd,
                "workdir": None,
                "idxs": {name: [trial.number] if name in positions else [] for name in names},
                "vals": {name: [positions[name]] if name in positions else [] for name in names},
            },
            "state": JOB_STATE_DONE if trial.done else JOB_STATE_NEW,
            "owner": None,
            "book_time": None,
            "refresh_time": None,
            "exp_key": None,
            "version": 0,
        }


def _algorithm(algorithm: Algorithm) -> Callable[..., Any]:
    if algorithm.name == "tpe_search":
        return functools.partial(
            tpe.suggest,
            gamma=float(param_value(algorithm, "gamma")),
            n_startup_jobs=int(param_value(algorithm, "n_initial_points")),
            verbose=False,
        )
    return functools.partial(
        anneal.suggest,
        avg_best_idx=float(param_value(algorithm, "avg_best_idx")),
        shrink_coef=float(param_value(algorithm, "shrink_coef")),
    )


def _distribution(axis: Axis) -> Any:
    match axis.form:
        case "real" if axis.log:
            return hp.loguniform(axis.name, math.log(axis.low), math.log(axis.high))
        case "real":
            return hp.uniform(axis.name, axis.low, axis.high)
        case "whole" if axis.log:
            # Half a step more on both sides gives the bounds the same probability as other values.
            return hp.qloguniform(axis.name, math.log(axis.low - 0.5), math.log(axis.high + 0.5), 1)
        case "whole" | "level":
            return hp.quniform(axis.name, axis.low - 0.5, axis.high + 0.5, 1)
        case "choice":
            return hp.randint(axis.name, len(axis.values))


def _never_called(_: object) -> float:
    raise AssertionError("trials run elsewhere")
