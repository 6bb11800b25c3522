"""Tables as tictl prints them: left-aligned, four spaces between columns, no wider than the terminal."""

import functools
import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any

GAP = "    "

COLOURS = {
    "succeeded": 32, "ok": 32,
    "running": 36,
    "queued": 33, "created": 33, "preparing": 33, "stopping": 33, "warn": 33,
    "failed": 31, "stopped": 31, "missing": 31,
}  # fmt: skip


def show(
    header: Sequence[str], rows: Sequence[Sequence[str]], no_header: bool = False, whole: bool = False
) -> None:
    """Cut to the terminal's width unless `whole`; never cut when piped."""
    width = None if whole or not sys.stdout.isatty() else shutil.get_terminal_size().columns
    for line in lines(header, rows, no_header, width):
        print(line)


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def lines(
    header: Sequence[str], rows: Sequence[Sequence[str]], no_header: bool = False, width: int | None = None
) -> list[str]:
    cells = [[_one_line(cell) for cell in row] for row in (rows if no_header else [header, *rows])]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    state = next((i for i, title in enumerate(header) if title in ("STATE", "STATUS")), None)
    return [_line(row, widths, state, width) for row in cells]


def coloured(word: str) -> str:
    """A state in its colour, on a terminal that has colours."""
    number = COLOURS.get(word.lower())
    return f"\033[{number}m{word}\033[0m" if number and has_colours() else word


@functools.cache
def has_colours() -> bool:
    if not sys.stdout.isatty():
        return False
    from rich.console import Console  # only here: it costs 20 ms, and it knows NO_COLOR and TERM

    console = Console()
    return console.color_system is not None and not console.no_color


def _one_line(cell: str) -> str:
    return " ".join(cell.split())


def _line(row: list[str], widths: list[int], state: int | None, width: int | None) -> str:
    padded = [cell.ljust(w) for cell, w in zip(row, widths, strict=True)]
    line = GAP.join(padded).rstrip()
    if width is not None and len(line) > width:
        line = line[: width - 1] + "…"
    if state is None:
        return line
    start = sum(widths[:state]) + state * len(GAP)
    end = start + len(row[state])
    return line[:start] + coloured(line[start:end]) + line[end:]
