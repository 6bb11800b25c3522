import subprocess
import sys

import pytest

from turnout.cli import command_line, serve, turnout
from turnout.cli.serve import Options

PLAIN = [
    (),
    ("--port", "9000"),
    ("--port=9000", "--host=0.0.0.0"),
    ("--data", "jobs", "--config=a=b.toml", "--no-auth"),
    ("--port", "1", "--port", "2"),
    ("--data=",),
]
NOT_PLAIN = [
    ("--help",),
    ("--port",),
    ("--port", "many"),
    ("--port", "٣"),
    ("--port", "65536"),
    ("--port=-1",),
    ("--host", "--no-auth"),
    ("--no-auth=1",),
    ("jobs",),
    ("--prot", "1"),
]


@pytest.fixture
def served(monkeypatch) -> list[Options]:
    """The options that the service was started with."""
    seen: list[Options] = []
    monkeypatch.setattr(serve, "serve", seen.append)
    return seen


@pytest.mark.parametrize("words", PLAIN)
def test_plain_options_mean_what_they_mean_to_the_other_commands(words, served, run_turnout, monkeypatch):
    assert run_turnout("serve", *words).code == 0
    monkeypatch.setattr(sys, "argv", ["turnout", "serve", *words])
    with pytest.raises(SystemExit):
        command_line.run(turnout.app, "turnout")
    by_itself, by_typer = served
    assert by_itself == by_typer


@pytest.mark.parametrize("words", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_typer(words):
    assert serve.plain_options(["serve", *words]) is None


def test_other_commands_are_not_the_service():
    assert serve.plain_options([]) is None
    assert serve.plain_options(["version"]) is None


def test_the_service_loads_no_command_line_and_no_websockets():
    program = "import sys, turnout.cli.main, turnout.app; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "turnout.app" in loaded
    assert {"typer", "websockets", "xml.sax", "turnout.cli.turnout"}.isdisjoint(loaded)
