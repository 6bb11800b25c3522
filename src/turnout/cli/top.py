"""`turnout top`: the machine, what runs on it and what waits, drawn again whenever a job changes."""

import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from turnout.cli.client import Client, Document
from turnout.cli.entry import print_error
from turnout.cli.login import connect
from turnout.cli.wait import duration

_APART = 0.5
"""Seconds between two readings: all changes that come in between are read at once."""
_BAR = 10
_WIDE = 110
_LONGEST = 24
"""Of a name in a table. The last column gets what is left."""
_GIB = 1 << 30
_TITLES = ("NAME", "API", "PROJECT", "STATE", "PLACE", "CPU", "GPU", "RAN", "WHY")
_WIDE_ONLY = ("PLACE", "CPU", "GPU")
_STYLES = {"running": "cyan", "preparing": "yellow", "queued": "yellow", "stopping": "yellow"}


class Frame(NamedTuple):
    """What the service says at one moment."""

    engines: list[Document]
    started: dict[str, int]
    """When the jobs started, by id."""


def top(project: str, endpoint: str | None) -> None:
    client = connect(endpoint, project=project)
    if not sys.stdout.isatty():
        # As wide as the content: nothing is cut in a pipe.
        Console(width=200).print(_drawn(_read(client), 200, 10_000))
        return
    client.notify = lambda text: print_error("turnout", text)
    console, shown = Console(), [_read(client)]

    def draw() -> RenderableType:
        return _drawn(shown[0], console.size.width, max(console.size.height - 3, 5))

    # It is drawn every second, because the times grow; the service is asked only when a job has changed.
    with Live(get_renderable=draw, console=console, screen=True, refresh_per_second=1):
        for _ in connect(endpoint, project=project).changes():
            shown[0] = _read(client)
            time.sleep(_APART)


def _read(client: Client) -> Frame:
    engines = client.get("queue")["engines"]
    live = client.get("jobs", state="running,stopping,preparing", limit="500")["jobs"]
    return Frame(engines, {job["id"]: job["started"] for job in live if job["started"] is not None})


def _drawn(frame: Frame, width: int, height: int) -> Group:
    """At most `height` lines. A narrow terminal gets no bars and fewer columns."""
    wide = width >= _WIDE
    machines = _machines(frame.engines, wide)
    jobs = [*_rows(frame, "holding"), *_rows(frame, "waiting")]
    room = max(height - machines.row_count - 3, 1)
    parts: list[RenderableType] = [machines, Text(), _jobs(jobs[:room], wide)]
    more = _total(frame) - len(jobs[:room])
    if not jobs and not more:
        parts.append(Text("No job runs or waits. `turnout run -- COMMAND` starts one.", style="dim"))
    elif more:
        parts.append(
            Text(f"… and {more} more; `turnout jobs --state live -n 0` lists all that you may see", "dim")
        )
    return Group(*parts)


def _machines(engines: Iterable[Document], wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("ENGINE", "CPU", "MEMORY", "GPU", "RUNNING", "WAITING"):
        table.add_column(title, no_wrap=title != "ENGINE")
    for engine in engines:
        capacity, free = engine["capacity"], engine["free"]
        used = {name: capacity[name] - free[name] for name in capacity}
        names = Text(engine["engine"])
        if engine["trouble"]:
            names.append(f"\n{engine['trouble']}", style="red")
        table.add_row(
            names,
            _bar(wide, used["cpu"], capacity["cpu"], f"{used['cpu']:g} of {capacity['cpu']:g}"),
            _bar(wide, used["memory"], capacity["memory"], _memory(used["memory"], capacity["memory"])),
            _bar(wide, used["gpus"], capacity["gpus"], f"{used['gpus']} of {capacity['gpus']}"),
            str(engine["holding_count"]),
            str(engine["waiting_count"]),
        )
    return table


def _memory(used: int, capacity: int) -> str:
    return f"{used / _GIB:.1f} of {capacity / _GIB:.1f} GiB"


def _bar(wide: bool, used: float, capacity: float, label: str) -> Text:
    if not capacity:
        return Text("none", style="dim")
    if not wide:
        return Text(label)
    full = min(_BAR, round(used / capacity * _BAR))
    colour = "green" if used < capacity * 0.75 else "yellow" if used < capacity else "red"
    return Text.assemble(("█" * full, colour), ("░" * (_BAR - full), "dim"), f" {label}")


def _jobs(rows: list[list[str]], wide: bool) -> Table:
    columns = [column for column, title in enumerate(_TITLES) if wide or title not in _WIDE_ONLY]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        widest = min(max((len(row[column]) for row in rows), default=0), _LONGEST)
        last = column == len(_TITLES) - 1
        least = None if last else max(widest, len(_TITLES[column]))
        table.add_column(
            _TITLES[column],
            no_wrap=True,
            overflow="ellipsis",
            min_width=least,
            max_width=None if last else least,
        )
    for row in rows:
        # Text, not markup: a job's name may have brackets.
        table.add_row(
            *(Text(row[column], _STYLES.get(row[column], "") if column == 3 else "") for column in columns)
        )
    return table


def _rows(frame: Frame, kind: str) -> Iterable[list[str]]:
    for engine in frame.engines:
        for job in engine[kind]:
            share = job.get("holds") or job["needs"]
            started = frame.started.get(job["id"])
            ran = duration((time.time_ns() - started) / 1e9) if started and kind == "holding" else "-"
            holds = kind == "holding"
            place = (
                ", ".join(one["node"] for one in job["nodes"]) if holds else f"{job['place']} in the queue"
            )
            head = [_plain(job["name"]), job["dialect"], job["project"], job["state"], place]
            yield [*head, f"{share['cpu']:g}", str(share["gpus"]), ran, job.get("waits_for", "")]


def _plain(name: str) -> str:
    """Without what a terminal would act on."""
    return "".join(character if character.isprintable() else "�" for character in name)


def _total(frame: Frame) -> int:
    return sum(engine["holding_count"] + engine["waiting_count"] for engine in frame.engines)
