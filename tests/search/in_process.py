"""Searches by the desk of the child process, without the process."""

from collections.abc import Callable

from turnout.job import Search
from turnout.job.search import Algorithm, Metric, Parameter, Point
from turnout.search.child import Desk
from turnout.search.seen import Seen

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
    """Asks for as many points as run at a time, then tells of them; `forget`: by a new desk each time."""
    known: dict[int, Seen] = {}
    desk = Desk(search, 1)
    while len(known) < trials:
        batch = range(len(known), min(len(known) + wide, trials))
        for number in batch:
            if forget:
                desk = Desk(search, 1)
            desk.learn(list(known.values()))
            known[number] = Seen(number, desk.ask(number))
        for number in batch:
            point = known[number].point
            known[number] = Seen(number, point, objective(point), done=True)
    return [known[number].point for number in range(trials)]
