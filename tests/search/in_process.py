"""Searches by the study of a search worker, in the tests' own process."""

from collections.abc import Callable

from turnout.job import Search
from turnout.job.search import Algorithm, Metric, Parameter, Point
from turnout.search.suggester import KnownTrial
from turnout.search.worker import Study

Objective = Callable[[Point], float | None]


def space(bounds: dict[str, tuple[float, float]], algorithm: str, wide: int = 1, **params) -> Search:
    return Search(
        parameters=tuple(Parameter(name, "float", low, high) for name, (low, high) in bounds.items()),
        metrics=(Metric("score", "max"),),
        algorithms=(Algorithm(algorithm, params),),
        parallel=wide,
    )


def run(
    search: Search, objective: Objective, trials: int, *, wide: int = 1, forget: bool = False
) -> list[Point]:
    """Asks for `wide` points at a time, then tells their results; `forget`: uses a new study for each point."""
    known: dict[int, KnownTrial] = {}
    study = Study(search, 1)
    while len(known) < trials:
        batch = range(len(known), min(len(known) + wide, trials))
        for number in batch:
            if forget:
                study = Study(search, 1)
            study.learn(list(known.values()))
            known[number] = KnownTrial(number, study.ask(number))
        for number in batch:
            point = known[number].point
            known[number] = KnownTrial(number, point, objective(point), done=True)
    return [known[number].point for number in range(trials)]
