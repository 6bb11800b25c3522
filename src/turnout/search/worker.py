"""The process that holds the libraries: `python -m turnout.search.child`, requests on stdin, answers on stdout."""

import os
import sys
from typing import BinaryIO

import msgspec

from turnout.errors import Invalid
from turnout.job.algorithms import budgets, told
from turnout.job.search import Point, Search, skips
from turnout.search.axes import Space
from turnout.search.messages import Answer, Ask, Draw, Judge, Measured, Open, Request, Scan, Weigh
from turnout.search.metrics import Patterns
from turnout.search.seen import Seen, Suggester

ATTEMPTS = 200


def main() -> None:
    """Ends with its stdin, which is the service's."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    decoder = msgspec.json.Decoder(Request)
    desk: Desk | None = None
    for line in requests:
        request = decoder.decode(line)
        try:
            if isinstance(request, Open):
                desk = Desk(request.search, request.seed)
                answer = Answer()
            else:
                answer = _answer(desk, request)
        except Invalid as error:
            answer = Answer(wrong=error.message)
        except ModuleNotFoundError as error:
            answer = Answer(missing=error.name or str(error))
        except Exception as error:  # noqa: BLE001 - whatever a library raises, this search hears of it
            answer = Answer(broken=f"{type(error).__name__}: {error}")
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


class Desk:
    """One search: its trials as far as they are known here, and the algorithms that ask for more."""

    def __init__(self, search: Search, seed: int) -> None:
        self.search = search
        self.space = Space(search.parameters)
        self.trials: dict[int, Seen] = {}
        self.curves: dict[int, list[Measured]] = {}
        self.patterns = Patterns(search.metrics)
        self._seed = seed
        self._budgets = budgets(search)
        self._suggesters: dict[int, Suggester] = {}

    def learn(self, news: list[Seen]) -> None:
        for trial in news:
            self.trials[trial.number] = trial

    def ask(self, number: int) -> Point:
        if number in self.trials:
            return self.trials[number].point
        index, first = self._turn(number)
        if index not in self._suggesters:
            self._suggesters[index] = self._suggester(index)
        seen = [self.trials[n] for n in range(first, number) if n in self.trials]
        if first:
            seen = [msgspec.structs.replace(trial, number=trial.number - first) for trial in seen]
        point = self._allowed(self._suggesters[index], number - first, seen)
        self.trials[number] = Seen(number, point)
        return point

    def _turn(self, number: int) -> tuple[int, int]:
        first = 0
        for index, count in enumerate(self._budgets):
            if number < first + count:
                return index, first
            first += count
        raise Invalid(f"the search has {first} trials, numbered from 0: there is no {number}")

    def _suggester(self, index: int) -> Suggester:
        """Imports the library of this algorithm, and no other."""
        algorithm = self.search.algorithms[index]
        seed = int(told(algorithm, "seed")) if "seed" in algorithm.params else self._seed
        maximize = self.search.metric.goal == "max"
        if not self.space.axes:
            return Still(self.space)
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

    def _allowed(self, suggester: Suggester, number: int, seen: list[Seen]) -> Point:
        for attempt in range(ATTEMPTS):
            point = suggester.suggest(number, seen, attempt)
            if not skips(self.search, point):
                return point
        raise Invalid(f"{ATTEMPTS} points in a row were of those to be skipped: what is left is too small")


class Still:
    """Where every parameter has one value only there is nothing to choose."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def suggest(self, number: int, seen: object, attempt: int) -> Point:
        return self._space.point({})


def _answer(desk: Desk | None, request: Ask | Judge | Weigh | Draw | Scan) -> Answer:
    if desk is None:
        raise Invalid("the search must be opened first")
    desk.learn(request.news)
    match request:
        case Ask(number=number):
            return Answer(point=desk.ask(number))
        case Judge(number=number, measured=measured):
            from turnout.search.stopping import should_stop

            for whose, more in measured.items():
                desk.curves.setdefault(whose, []).extend(more)
            return Answer(stop=should_stop(desk.search, number, desk.curves, desk.trials))
        case Scan(lines=lines):
            return Answer(found=desk.patterns.find(lines))
        case Weigh():
            from turnout.search.importance import importance

            return Answer(weights=importance(desk.space, list(desk.trials.values())))
        case Draw(name=name):
            from turnout.search.picture import picture

            return Answer(picture=picture(desk.search, desk.space, list(desk.trials.values()), name))


if __name__ == "__main__":
    main()
