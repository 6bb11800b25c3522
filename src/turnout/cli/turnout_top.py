"""`turnout top`: a live view of the queue and the machine."""

import typer

from turnout.cli import help
from turnout.cli.options import Endpoint, Project


def add(app: typer.Typer) -> None:
    help.command(app, "top", "turnout top")(top)


def top(project: Project = "", endpoint: Endpoint = None) -> None:
    """Show the machine, what runs on it and what waits, live until Ctrl-C. In a pipe, print it once."""
    from turnout.cli import top

    top.top(project, endpoint)
