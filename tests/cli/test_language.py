"""tictl speaks English or Chinese, by the locale."""

import ast
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.programs import program
from tests.running import ROOT, python_path
from turnout.cli import tictl

CHINESE = tomllib.loads((ROOT / "src" / "turnout" / "cli" / "chinese.toml").read_text())
OF_THE_LAYOUT = {
    "USAGE",
    "DESCRIPTION",
    "COMMANDS",
    "OPTIONS",
    "EXAMPLES",
    "default",
    "Show this message and exit.",
}
IDEOGRAPH = re.compile(r"[\u4e00-\u9fff]")


def texts(command: Any) -> Iterator[str]:
    """All texts of a command's help, and of the commands below it."""
    if command.help:
        yield command.help
    yield from (
        one.help for one in command.params if getattr(one, "help", None) and not getattr(one, "hidden", False)
    )
    for below in getattr(command, "commands", {}).values():
        if not below.hidden:
            yield from texts(below)


def results() -> Iterator[str]:
    """The texts of the results: what is given to `say`, itself or as the variable `text`."""
    for path in (ROOT / "src" / "turnout" / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name("say"), args=[ast.Constant(str(text))]):
                    yield text
                case ast.Assign(targets=[ast.Name("text")], value=ast.Constant(str(text))):
                    yield text
                case ast.Assign(
                    targets=[ast.Name("text")],
                    value=ast.IfExp(body=ast.Constant(str(text)), orelse=ast.Constant(str(other))),
                ):
                    yield from (text, other)


def test_every_text_of_help_and_results_has_its_translation():
    english = set(texts(get_command(tictl.app)))
    assert not [text for text in english if IDEOGRAPH.search(text)]
    assert english | set(results()) | OF_THE_LAYOUT == set(CHINESE)
    for text, chinese in CHINESE.items():
        assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", chinese))


def test_results_are_in_one_language_too(tmp_path: Path):
    environment = os.environ | {"PYTHONPATH": python_path(), "LC_ALL": "zh_CN.UTF-8", "HOME": str(tmp_path)}
    shown = subprocess.run([*program("tictl"), "logout"], env=environment, capture_output=True, check=True)
    assert shown.stdout.decode() == "当前没有登录信息\n"


@pytest.mark.parametrize(
    ("variables", "chinese"),
    [
        ({"LC_ALL": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}, True),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_TW.UTF-8", "LANG": "C"}, True),
        ({"LC_ALL": "C.UTF-8", "LANG": "zh_CN.UTF-8"}, False),
        ({"LC_ALL": "zh_CN", "PYTHONIOENCODING": "ascii"}, False),
    ],
)
def test_the_locale_chooses_one_language(variables: dict[str, str], chinese: bool):
    environment = os.environ | {"PYTHONPATH": python_path(), "LC_MESSAGES": ""} | variables
    shown = subprocess.run(
        [*program("tictl"), "job", "create", "--help"], env=environment, capture_output=True, check=True
    ).stdout.decode()
    assert bool(IDEOGRAPH.search(shown)) is chinese
    assert ("创建任务" in shown) is chinese
    assert ("Create a job" in shown) is not chinese
