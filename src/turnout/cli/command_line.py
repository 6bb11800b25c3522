"""Runs a tree of Typer commands, and says what is wrong with a command line in plain words."""

import re
from collections.abc import Callable
from functools import partial
from typing import NoReturn

import typer

from turnout.cli import entry


def run(app: typer.Typer, name: str) -> NoReturn:
    entry.run(partial(_call, app, name), name)


def _call(app: typer.Typer, name: str) -> int | None:
    try:
        return app(prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        entry.fail(name, _usage(error))
    except typer.Abort:
        raise KeyboardInterrupt from None


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip(".")
    for pattern, words in _PLAIN_WORDS.items():
        message = re.sub(pattern, words, message)
    message = message[:1].lower() + message[1:]
    if not context:
        return message
    return f"{message}{' See' if message.endswith('?') else '; see'} `{context.command_path} --help`"


_PLAIN_WORDS: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"\.? Did you mean": ": did you mean",
    r"is not a valid int(eger)?( range)?": "is not a whole number",
    r"is not a valid float( range)?": "is not a number",
    r"is not in the range (\d+)<=x<=(\d+)": r"is not from \1 to \2",
    r"is not in the range x>=(\d+)": r"is less than \1",
    r"Invalid value for '([^']+)'(?: / '([^']+)')?": lambda found: ", ".join(filter(None, found.groups())),
}
"""Patterns of Typer's messages, and plainer words for them."""
