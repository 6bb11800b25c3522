"""How a command line starts and ends: one clear line on stderr and exit code 1, never a traceback."""

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from turnout.errors import TurnoutError


def run(command: Callable[[], int | None], name: str) -> NoReturn:
    try:
        code = command()
    except TurnoutError as error:
        fail(name, error.message)
    except KeyboardInterrupt:
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
