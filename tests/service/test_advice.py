"""What `turnout explain` says to the user whose program could not import a module."""

import pytest

from turnout import config
from turnout.job import Program
from turnout.service.advice import after_failure, missing_module

LINES = ["Traceback (most recent call last):", "ModuleNotFoundError: No module named 'torch'"]
HOST = "Python 3.11.2 (/usr/bin/python3)"


def advice(program: Program, **runtimes: object) -> str:
    return after_failure(program, HOST, LINES, config.load(flags={"runtimes": runtimes}))


def test_a_job_without_a_runtime():
    told = advice(Program(("python",)))
    assert told.startswith(f"`python` was {HOST}, which has no module torch.")
    assert '[runtimes.default] packages = ["torch"] and restart the service.' in told


def test_a_preset():
    program = Program(("python",), runtime="tia-1.7.0", wants="TensorFlow 1.7.0")
    told = advice(program)
    assert '[runtimes."tia-1.7.0"] packages = ["torch"], or [runtimes] make = true' in told
    assert "make = true" not in advice(program, make=True)


def test_a_runtime_of_the_settings():
    made = advice(Program(("python",), runtime="mine"), mine={"packages": ["numpy"]})
    assert 'Add "torch" to [runtimes.mine] packages and restart' in made
    by_default = advice(
        Program(("python",), runtime="some/image"), mine={"packages": ["numpy"]}, default="mine"
    )
    assert 'Add "torch" to [runtimes.mine] packages and restart' in by_default
    named = advice(Program(("python",), runtime="mine"), mine={"python": "/opt/torch/bin/python"})
    assert 'Install it there, or put packages = ["torch"] into [runtimes.mine]' in named


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("ModuleNotFoundError: No module named 'sklearn'", "sklearn"),
        ("ModuleNotFoundError: No module named 'google.cloud'", "google"),
        ("/usr/bin/python3: No module named torch.distributed.run", "torch"),
        ("Error: no module", ""),
    ],
)
def test_the_missing_module(line: str, module: str):
    assert missing_module(["first", line]) == module


def test_another_failure():
    told = after_failure(Program(("python",)), HOST, ["boom"], config.load(flags={}))
    assert (
        told
        == f'`python` was {HOST}; to use another, set [runtimes.default] python = "…" or packages = ["…"].'
    )
