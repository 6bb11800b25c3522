"""Waiting for a job: a live line on a terminal, a line for each change of state elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from turnout.cli import table
from turnout.cli.client import Client, Document
from turnout.cli.login import stored

Say = Callable[[str], None]

NOT_STARTED = {"queued", "preparing"}
NOT_ENDED = {"running", "stopping"}


def until_the_end(client: Client, job: Document, quiet: bool = False) -> Document:
    """`job` is the one that DescribeJob gave. `quiet` keeps stdout for something else."""
    name, id, since = job["Name"], job["Id"], time.monotonic()
    with _progress(quiet) as say, _interruptible(job):
        view, why = client.wait(id, "started", 0), ""
        while view["state"] in NOT_STARTED:
            say(f"{name}: {view['state']}{why}")
            view = client.wait(id, "started", 10 if why else 1)
            why = f", {_why(client, id)}" if view["state"] in NOT_STARTED else ""
        while view["state"] in NOT_ENDED:
            say(f"{name}: {view['state']}, {_members(view)}")
            view = client.wait(id, "ended")
    _conclude(job, view, time.monotonic() - since, quiet)
    return view


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


@contextlib.contextmanager
def _interruptible(job: Document) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        words = _words(job)
        print(f"\nThe job goes on: `tictl logs -f {words}`, `tictl job delete {words}`", file=sys.stderr)
        raise


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[Say]:
    stream = sys.stderr if quiet else sys.stdout
    if not stream.isatty():
        yield _news(stream)
        return
    from rich.console import Console  # only on a terminal: it costs 20 ms
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=stream), transient=True) as progress:
        line = progress.add_task("")
        yield lambda text: progress.update(line, description=text)


def _news(stream: TextIO) -> Say:
    last = ""

    def say(text: str) -> None:
        nonlocal last
        if text != last:
            print(text, file=stream, flush=True)
        last = text

    return say


def _why(client: Client, id: str) -> str:
    return " ".join(client.get("jobs", id, "explain")["why"])


def _members(view: Document) -> str:
    count = len(view["replicas"])
    running = sum(replica["state"] == "running" for replica in view["replicas"])
    return f"{running} of {count} replicas" if running != count else f"{count} replica{'s' * (count != 1)}"


def _conclude(job: Document, view: Document, seconds: float, quiet: bool) -> None:
    name, words = job["Name"], _words(job)
    if not quiet:
        print(f"{name}: {table.coloured(view['state'])} after {duration(seconds)}", flush=True)
    if view["state"] != "succeeded":
        why = f"{view['reason']}: {view['message']}" if view.get("message") else view["reason"]
        print(f"{name}: {why}; see `tictl logs {words}` and `turnout explain {words}`", file=sys.stderr)


def _words(job: Document) -> str:
    """What names the job on a command line."""
    name, cluster = job["Name"], job["Cluster"]
    return name if cluster == stored().place()[1] else f"{name} -c {cluster}"
