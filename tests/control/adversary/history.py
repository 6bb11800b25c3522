"""Runs histories, and shortens those that fail.

A history is a list of numbers. Each is the seed of one step, so a history that fails still means something after
steps have been removed from it: that is how `shortest` makes it readable.
"""

import logging
import re
from collections.abc import Sequence
from random import Random

from tests.control.adversary.steps import take_step
from tests.control.adversary.virtual_time import VirtualLoop
from tests.control.adversary.world import World


class Failure(AssertionError):
    """The message says what happened, and ends with the history."""


def history_of(seed: int, steps: int) -> list[int]:
    chance = Random(seed)
    return [chance.randrange(1_000_000) for _ in range(steps)]


def run(history: Sequence[int]) -> World:
    """Runs the steps, then lets the engines behave until every job has ended. Raises Failure."""
    loop = VirtualLoop()
    world = World(loop)
    logger = logging.getLogger("turnout.control")
    logger.addHandler(world.problems)
    logger.propagate, before = False, logger.propagate
    try:
        loop.run_until_complete(_live(world, history))
    except AssertionError as error:
        told = "\n".join(f"  {line}" for line in world.told)
        raise Failure(f"{error}\n{told}\nhistory: {list(history)}") from error
    finally:
        logger.removeHandler(world.problems)
        logger.propagate = before
        loop.run_until_complete(world.kill())
        loop.close()
    return world


def shortest(history: Sequence[int]) -> list[int]:
    """A history that fails in the same way, from which no step can be removed."""
    history, size, problem = list(history), len(history) // 2, problem_of(history)
    while size:
        start = 0
        while start < len(history):
            less = history[:start] + history[start + size :]
            if problem_of(less) == problem:
                history = less
            else:
                start += size
        size //= 2
    return history


def problem_of(history: Sequence[int]) -> str:
    """What goes wrong in it, without the numbers of jobs; empty: nothing."""
    try:
        run(history)
    except AssertionError as error:
        return re.sub(r"\d+", "#", str(error).partition("\n")[0])
    return ""


async def _live(world: World, history: Sequence[int]) -> None:
    await world.boot()
    for number in history:
        await take_step(world, Random(number))
    await world.calm_down()
    world.check_end()
