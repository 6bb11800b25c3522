"""The command lines as programs of their own."""

import sys


def program(name: str) -> list[str]:
    """`turnout` or `tictl`, with this interpreter."""
    return [sys.executable, "-m", {"turnout": "turnout.cli.main", "tictl": "turnout.cli.tictl"}[name]]
