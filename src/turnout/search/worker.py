"""A search worker: the process that runs the libraries. It holds several studies and answers one request at a time."""

import sys
from collections import OrderedDict

import msgspec

from turnout.child_processes.bootstrap import Setup, drop_privileges, read_setup, reply
from turnout.errors import Invalid
from turnout.job.algorithms import algorithm_of, budgets, param_value
from turnout.job.search import Point, Search, skips
from turnout.search.axes import Space
from turnout.search.messages import (
    Ask,
    ComputeImportance,
    Draw,
    MetricValue,
    Open,
    Request,
    Scan,
    ShouldStop,
    StudyReply,
    StudyRequest,
)
from turnout.search.metrics import Patterns
from turnout.search.suggester import KnownTrial, Suggester

ATTEMPTS = 200
SESSIONS = 32
"""How many studies a worker holds. Beyond that it drops the one that was used least recently."""


def main() -> None:
    """Runs until its input ends."""
    drop_privileges(read_setup(Setup))
    studies = Studies()
    decoder = msgspec.json.Decoder(Request)
    for line in sys.stdin.buffer:
        reply(studies.answer(decoder.decode(line)))


class Studies:
    def __init__(self, most: int = SESSIONS) -> None:
        self._most = most
        self._studies: OrderedDict[int, Study] = OrderedDict()

    def answer(self, request: Request) -> StudyReply:
        try:
            return self._answer(request)
        except Invalid as error:
            return StudyReply(request.id, invalid=error.message)
        except ModuleNotFoundError as error:
            return StudyReply(request.id, missing_package=error.name or str(error))
        except MemoryError:
            self._studies.clear()
            return StudyReply(request.id, out_of_memory=True)
        except Exception as error:  # noqa: BLE001 - a library may raise anything; the search gets the message
            return StudyReply(request.id, library_error=f"{type(error).__name__}: {error}")

    def _answer(self, request: Request) -> StudyReply:
        if isinstance(request, Open):
            self._studies[request.session] = Study(request.search, request.seed)
            while len(self._studies) > self._most:
                self._studies.popitem(last=False)
            return StudyReply(request.id)
        if request.session not in self._studies:
            return StudyReply(request.id, unknown_session=True)
        self._studies.move_to_end(request.session)
        return _answer(self._studies[request.session], request)


class Study:
    """One search in a worker: the trials that it knows, and the algorithms that suggest new points."""

    def __init__(self, search: Search, seed: int) -> None:
        self.search = search
        self.space = Space(search.parameters)
        self.trials: dict[int, KnownTrial] = {}
        self.curves: dict[int, list[MetricValue]] = {}
        self.best_and_last: dict[int, list[MetricValue]] = {}
        self.patterns = Patterns(search.metrics)
        self._seed = seed
        self._budgets = budgets(search)
        self._suggesters: dict[int, Suggester] = {}

    def learn(self, changed_trials: list[KnownTrial]) -> None:
        for trial in changed_trials:
            self.trials[trial.number] = trial

    def ask(self, number: int) -> Point:
        if number in self.trials:
            return self.trials[number].point
        index, own_number = algorithm_of(self._budgets, number)
        first = number - own_number
        if index not in self._suggesters:
            self._suggesters[index] = self._suggester(index)
        seen = [self.trials[n] for n in range(first, number) if n in self.trials]
        if first:
            seen = [msgspec.structs.replace(trial, number=trial.number - first) for trial in seen]
        point = self._not_skipped(self._suggesters[index], own_number, seen)
        self.trials[number] = KnownTrial(number, point)
        return point

    def _suggester(self, index: int) -> Suggester:
        """Imports only the library of this algorithm."""
        algorithm = self.search.algorithms[index]
        seed = int(param_value(algorithm, "seed")) if "seed" in algorithm.params else self._seed
        maximize = self.search.metric.goal == "max"
        if not self.space.axes:
            return SinglePoint(self.space)
        match algorithm.name:
            case "bayes_opt_search":
                from turnout.search.bayes import Bayes

                return Bayes(self.space, algorithm, seed, maximize)
            case "tpe_search" | "anneal_search":
                from turnout.search.hyperopt import Hyperopt

                return Hyperopt(self.space, algorithm, seed, maximize)
            case "grid":
                from turnout.search.optuna import Grid

                return Grid(self.search, seed)
            case name:
                from turnout.search.optuna import Optuna

                return Optuna(self.space, name, seed, maximize, self.search.parallel)

    def _not_skipped(self, suggester: Suggester, number: int, seen: list[KnownTrial]) -> Point:
        for attempt in range(ATTEMPTS):
            point = suggester.suggest(number, seen, attempt)
            if not skips(self.search, point):
                return point
        raise Invalid(f"{ATTEMPTS} points in a row had to be skipped: too few points are left to try")


class SinglePoint:
    """For a space in which every parameter has only one value."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def suggest(self, number: int, seen: object, attempt: int) -> Point:
        return self._space.point({})


def _answer(study: Study, request: StudyRequest) -> StudyReply:
    study.learn(request.changed_trials)
    match request:
        case Ask(number=number):
            return StudyReply(request.id, point=study.ask(number))
        case ShouldStop(number=number, new_values=new_values, best_and_last=best_and_last):
            from turnout.search.stopping import should_stop

            for trial_number, more in new_values.items():
                study.curves.setdefault(trial_number, []).extend(more)
            study.best_and_last |= best_and_last
            curves = {
                trial_number: [*curve, *study.best_and_last[trial_number]]
                for trial_number, curve in study.curves.items()
            }
            return StudyReply(request.id, stop=should_stop(study.search, number, curves, study.trials))
        case Scan(lines=lines):
            return StudyReply(request.id, found=tuple(study.patterns.find(lines)))
        case ComputeImportance():
            from turnout.search.importance import importance

            return StudyReply(
                request.id, importance=tuple(importance(study.space, list(study.trials.values())))
            )
        case Draw(name=name):
            from turnout.search.picture import picture

            drawn = picture(study.search, study.space, list(study.trials.values()), name)
            return StudyReply(request.id, picture=drawn)


if __name__ == "__main__":
    main()
