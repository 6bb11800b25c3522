"""Waiting for a job: a live line on a terminal, a line for each change of state elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from turnout.cli import table
from turnout.cli.client import Client, Document
from turnout.cli.entry import print_error
from turnout.cli.language import say
from turnout.cli.login import stored

ShowLine = Callable[[str], None]

NOT_STARTED = {"queued", "preparing"}
NOT_ENDED = {"running", "stopping"}


def until_ended(client: Client, job: Document, quiet: bool = False) -> Document:
    """`job`: as DescribeJob returned it. With `quiet`, nothing goes to stdout."""
    name, id = job["Name"], job["Id"]
    with _progress(quiet) as show_line, _interruptible(job):
        client.notify = _notifier(name, show_line, quiet)
        view, why = client.wait(id, "started", 0), ""
        while view["state"] in NOT_STARTED:
            show_line(f"{name}: {view['state']}{why}")
            view = client.wait(id, "started", 10 if why else 1)
            why = f", {_why(client, id)}" if view["state"] in NOT_STARTED else ""
        while view["state"] in NOT_ENDED:
            show_line(f"{name}: {view['state']}, {_replicas(view)}")
            view = client.wait(id, "ended")
    _conclude(job, view, quiet)
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
        arguments = _arguments(job)
        text = "The job keeps running: `tictl logs -f {arguments}`, `tictl job delete {arguments}`"
        print(f"\n{say(text, arguments=arguments)}", file=sys.stderr)
        raise


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[ShowLine]:
    stream = sys.stderr if quiet else sys.stdout
    if not stream.isatty():
        yield _changes(stream)
        return
    from rich.console import Console  # only on a terminal: it costs 20 ms
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=stream), transient=True) as progress:
        line = progress.add_task("")
        yield lambda text: progress.update(line, description=text)


def _changes(stream: TextIO) -> ShowLine:
    last = ""

    def show_line(text: str) -> None:
        nonlocal last
        if text != last:
            print(text, file=stream, flush=True)
        last = text

    return show_line


def _notifier(name: str, show_line: ShowLine, quiet: bool) -> ShowLine:
    """Shows a message in the live line, until the next state replaces it. Without a live line, prints it to stderr."""
    if (sys.stderr if quiet else sys.stdout).isatty():
        return lambda text: show_line(f"{name}: {text}")
    return lambda text: print_error("tictl", text)


def _why(client: Client, id: str) -> str:
    return " ".join(client.get("jobs", id, "explain")["why"])


def _replicas(view: Document) -> str:
    count = len(view["replicas"])
    running = sum(replica["state"] == "running" for replica in view["replicas"])
    return f"{running} of {count} replicas" if running != count else f"{count} replica{'s' * (count != 1)}"


def _conclude(job: Document, view: Document, quiet: bool) -> None:
    name, arguments = job["Name"], _arguments(job)
    if not quiet:
        print(f"{name}: {table.coloured(view['state'])} {_times(view)}", flush=True)
    if view["state"] != "succeeded":
        why = " ".join(_end(view).split()).rstrip(".")
        text = "{name}: {why}; see `tictl logs {arguments}` and `turnout explain {arguments}`"
        print(say(text, name=name, why=why, arguments=arguments), file=sys.stderr)


def _times(view: Document) -> str:
    """How long the job ran, and how long it waited if that was a second or more."""
    created, started, ended = view["created"], view["started"], view["ended"]
    waited = ((started or ended) - created) / 1e9
    wait = say(", after {time} of waiting", time=duration(waited)) if waited >= 1 else ""
    if started is None:
        return f"{say('before it started')}{wait}"
    return f"{say('after {time}', time=duration((ended - started) / 1e9))}{wait}"


def _end(view: Document) -> str:
    """The reason and the message; the message alone if it contains the reason."""
    reason, message = view["reason"] or view["state"], view.get("message") or ""
    return message if reason in message else f"{reason}: {message}" if message else reason


def _arguments(job: Document) -> str:
    """The arguments that name the job on a command line."""
    name, cluster = job["Name"], job["Cluster"]
    return name if cluster == stored().region_and_cluster()[1] else f"{name} -c {cluster}"
