"""Search workers with a fault."""

import os
import signal
import sys

import msgspec

from tests.running import ROOT
from turnout.child_processes.child import ChildProgram
from turnout.job.search import Point
from turnout.search import worker
from turnout.search.worker_pool import PROGRAM


def process(function: str) -> ChildProgram:
    """The program that runs one of these functions."""
    return msgspec.structs.replace(
        PROGRAM, module="tests.search.faulty_workers", function=function, sources=str(ROOT)
    )


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def without_optuna() -> None:
    sys.modules["optuna"] = None  # type: ignore[assignment]
    worker.main()


def greedy() -> None:
    """A search whose parameter is called `greedy` needs more memory than there is."""
    ask = worker.Study.ask

    def greedily(study: worker.Study, number: int) -> Point:
        if any(axis.name == "greedy" for axis in study.search.parameters):
            bytearray(4 << 30)
        return ask(study, number)

    worker.Study.ask = greedily  # type: ignore[method-assign]
    worker.main()
