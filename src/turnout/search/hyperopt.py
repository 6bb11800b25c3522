"""`tpe_search` and `anneal_search`, by hyperopt.

Each of its suggestions depends on nothing but the trials and a seed, which `fmin` draws one after another from its
generator: so does this.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import hyperopt
import numpy as np
from hyperopt import anneal, hp, rand, tpe
from hyperopt.base import JOB_STATE_DONE, JOB_STATE_NEW, STATUS_FAIL, STATUS_NEW, STATUS_OK, Domain

from turnout.job.algorithms import told
from turnout.job.search import Algorithm, Point
from turnout.search.axes import Axis, Space
from turnout.search.seen import Seen

_LARGEST = 2**31 - 1
_OWN_ATTEMPTS = 10


class Hyperopt:
    def __init__(self, space: Space, algorithm: Algorithm, seed: int, maximize: bool) -> None:
        self._space = space
        self._suggest = _algorithm(algorithm)
        self._sign = -1.0 if maximize else 1.0
        self._domain = Domain(_nothing, {axis.name: _distribution(axis) for axis in space.axes})
        self._seed = seed
        self._generator = np.random.default_rng(seed)
        self._drawn: list[int] = []
        self._documents: dict[int, tuple[Seen, dict[str, Any]]] = {}

    def suggest(self, number: int, seen: Sequence[Seen], attempt: int) -> Point:
        trials = hyperopt.trials_from_docs([self._known(trial) for trial in seen], validate=False)
        suggest = self._suggest if attempt < _OWN_ATTEMPTS else rand.suggest
        (document,) = suggest([number], self._domain, trials, self._seed_of(number, attempt))
        return self._space.point({name: found[0] for name, found in document["misc"]["vals"].items()})

    def _seed_of(self, number: int, attempt: int) -> int:
        if attempt:
            return int(np.random.default_rng([self._seed, number, attempt]).integers(_LARGEST))
        while len(self._drawn) <= number:
            self._drawn.append(int(self._generator.integers(_LARGEST)))
        return self._drawn[number]

    def _known(self, trial: Seen) -> dict[str, Any]:
        before, document = self._documents.get(trial.number, (None, {}))
        if before != trial:
            document = self._document(trial)
            self._documents[trial.number] = trial, document
        return document

    def _document(self, trial: Seen) -> dict[str, Any]:
        """A parameter that was not there has no value, which is how hyperopt tells branches of a space apart."""
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
            gamma=float(told(algorithm, "gamma")),
            n_startup_jobs=int(told(algorithm, "n_initial_points")),
            verbose=False,
        )
    return functools.partial(
        anneal.suggest,
        avg_best_idx=float(told(algorithm, "avg_best_idx")),
        shrink_coef=float(told(algorithm, "shrink_coef")),
    )


def _distribution(axis: Axis) -> Any:
    match axis.form:
        case "real" if axis.log:
            return hp.loguniform(axis.name, math.log(axis.low), math.log(axis.high))
        case "real":
            return hp.uniform(axis.name, axis.low, axis.high)
        case "whole" if axis.log:
            # Half a step more on both sides gives the bounds themselves their whole share.
            return hp.qloguniform(axis.name, math.log(axis.low - 0.5), math.log(axis.high + 0.5), 1)
        case "whole" | "level":
            return hp.quniform(axis.name, axis.low - 0.5, axis.high + 0.5, 1)
        case "choice":
            return hp.randint(axis.name, len(axis.values))


def _nothing(_: object) -> float:
    raise AssertionError("trials run elsewhere")
