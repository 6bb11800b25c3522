"""How a command line starts and ends: one clear line on stderr and exit code 1, never a traceback."""

import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import typer

from turnout.errors import TurnoutError


def run(app: typer.Typer, name: str) -> NoReturn:
    try:
        code = app(prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        fail(name, _usage(error))
    except TurnoutError as error:
        fail(name, error.message)
    except typer.Abort:
        fail(name, "interrupted", 130)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(name, f"{where}{error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - a user can do nothing with a traceback
        fail(name, f"this is a bug in {name}, please report it: {type(error).__name__}: {error}")
    sys.exit(code or 0)


def fail(name: str, message: str, code: int = 1) -> NoReturn:
    print_error(name, message)
    sys.exit(code)


def print_error(name: str, message: str) -> None:
    sys.stdout.flush()
    print(f"{name}: {' '.join(message.split())}", file=sys.stderr)


def mention_older(name: str, job: str, view: dict[str, Any]) -> None:
    """`view` is the newest of the jobs that `job` names."""
    older = view.get("older")
    if older:
        several = ", ".join(
            f"{old['id']} ({old['state']}{old['place'] and ' '}{old['place']}, project {old['project']})"
            for old in older
        )
        print_error(name, f"several jobs are named {job}: this is the newest, {view['id']}; older: {several}")


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
