"""Compares searches with the libraries alone: the same points one by one, no worse four wide, better than random."""

import asyncio
import multiprocessing
import os
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from bench.alone import ALONE, PROBLEMS, Points, Problem, alone
from bench.floor import Floor
from bench.table import Row, Table
from turnout.job import Search
from turnout.job.search import Algorithm, Metric, Parameter
from turnout.search import SearchWorkerPool, StudyClient

BEST = {"Branin": -0.397887, "Hartmann-6": 3.322368, "digits": 1.0}
WIDE = 4
# Two results that differ by less are the same.
CLOSE = 1e-9


class Run(NamedTuple):
    problem: str
    algorithm: str
    seed: int
    wide: int


class Found(NamedTuple):
    """The regret of the best trial, with Turnout and with the library alone, and the points that differed."""

    ours: float
    alone: float
    different: int


def search(table: Table, directory: Path, floor: Floor) -> None:
    seeds, trials = (range(2), 30) if table.quick else (range(10), 60)
    runs = [
        Run(problem.name, algorithm, seed, wide)
        for problem in PROBLEMS
        for algorithm in ALONE
        for wide in (1, WIDE)
        for seed in seeds
    ]
    found = dict(_all(table, runs, trials))
    _add_same(table, found, trials)
    for problem in PROBLEMS:
        _add_wide(table, found, problem.name)
    for problem in PROBLEMS:
        for algorithm in ("bayes_opt_search", "tpe_search", "default"):
            _add_against_chance(table, found, problem.name, algorithm)


def try_both(run: Run, trials: int) -> Found:
    problem = next(problem for problem in PROBLEMS if problem.name == run.problem)
    theirs = alone(run.algorithm, problem, trials, run.seed, run.wide)
    ours = asyncio.run(_ours(run, problem, trials))
    different = sum(mine != other for (mine, _), (other, _) in zip(ours, theirs, strict=True))
    return Found(_regret(problem, ours), _regret(problem, theirs), different)


async def _ours(run: Run, problem: Problem, trials: int) -> Points:
    parameters = tuple(Parameter(name, "float", low, high) for name, (low, high) in problem.bounds.items())
    algorithm = Algorithm(run.algorithm, {"num_samples": trials, "seed": run.seed})
    pool = SearchWorkerPool(1)
    study = StudyClient(pool)
    await study.open(Search(parameters, (Metric("score"),), (algorithm,), parallel=run.wide), 1, [])
    found: Points = []
    while len(found) < trials:
        batch = range(len(found), min(len(found) + run.wide, trials))
        points = [{name: float(v) for name, v in (await study.ask(number)).items()} for number in batch]
        for number, point in zip(batch, points, strict=True):
            found.append((point, problem.objective(point)))
            await study.tell(number, found[-1][1])
    await pool.close()
    return found


def _all(table: Table, runs: list[Run], trials: int) -> Iterator[tuple[Run, Found]]:
    step = table.steps("search", len(runs))
    cores = len(os.sched_getaffinity(0))
    # As in the process that holds the libraries for a search: on more threads, sums come out a little different.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(try_both, run, trials): run for run in runs}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
            step()


def _regret(problem: Problem, found: Points) -> float:
    return max(float(BEST[problem.name] - max(value for _, value in found)), CLOSE)


def _median(found: dict[Run, Found], problem: str, algorithm: str, wide: int) -> tuple[float, float]:
    chosen = [
        one
        for run, one in found.items()
        if (run.problem, run.algorithm, run.wide) == (problem, algorithm, wide)
    ]
    return statistics.median(one.ours for one in chosen), statistics.median(one.alone for one in chosen)


def _add_same(table: Table, found: dict[Run, Found], trials: int) -> None:
    alike = [one.different for run, one in found.items() if run.wide == 1]
    what = f"search: of {len(alike) * trials} points one at a time, not the library's"
    table.add(Row("search same", what, sum(alike), "", target=0, judged="measured"))


def _add_wide(table: Table, found: dict[Run, Found], problem: str) -> None:
    for algorithm in ALONE:
        ours, theirs = _median(found, problem, algorithm, WIDE)
        what = f"search: {algorithm} on {problem}, {WIDE} wide, median regret"
        table.add(Row(f"search wide {algorithm} {problem}", what, ours, "", theirs, target=1.0))


def _add_against_chance(table: Table, found: dict[Run, Found], problem: str, algorithm: str) -> None:
    ours, _ = _median(found, problem, algorithm, 1)
    chance, _ = _median(found, problem, "random", 1)
    what = f"search: {algorithm} on {problem}, median regret to random's"
    table.add(Row(f"search chance {algorithm} {problem}", what, ours, "", chance, target=1.0))
