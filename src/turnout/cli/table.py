"""Tables as tictl prints them: left-aligned, four spaces between columns, no wider than the terminal."""

import functools
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from turnout.cli.options import Form

Rows = Sequence[Sequence[str]]

GAP = "    "
NARROW_GAP = "  "
LEAST = 8
"""The smallest useful width of the last column."""
WRAPPED_LEAST = 24
"""If less is left for the last column, the gaps between columns get narrower."""

COLOURS = {
    "succeeded": 32, "ok": 32,
    "running": 36,
    "queued": 33, "created": 33, "preparing": 33, "stopping": 33, "warn": 33,
    "failed": 31, "stopped": 31, "missing": 31,
}  # fmt: skip


def show(header: Sequence[str], rows: Rows, no_header: bool = False, whole: bool = False) -> None:
    """Cuts lines to the terminal's width unless `whole`. Never cuts in a pipe."""
    for line in lines(header, rows, no_header, None if whole else room()):
        print(line)


def show_wrapped(header: Sequence[str], rows: Rows, no_header: bool = False, whole: bool = False) -> None:
    """On a terminal, wraps the last column instead of cutting it, unless `whole`."""
    for line in wrapped(header, rows, None if whole else room(), no_header):
        print(line)


def paragraph(text: str, indent: str = "") -> list[str]:
    """Wraps at the terminal's width. One line in a pipe."""
    width = room()
    if width is None:
        return [indent + text]
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def room() -> int | None:
    """The width of the terminal. None in a pipe, where nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def show_document(value: Any, output: Form) -> None:
    """As JSON or YAML."""
    if output is Form.YAML:
        print(_yaml(value), end="")
    else:
        print(json.dumps(value, indent=2, ensure_ascii=False))


def document_line(value: Any, output: Form) -> str:
    """One of many values: a line of JSON, or an item of a list in YAML."""
    return _yaml([value]).rstrip("\n") if output is Form.YAML else json.dumps(value, ensure_ascii=False)


def lines(header: Sequence[str], rows: Rows, no_header: bool = False, width: int | None = None) -> list[str]:
    """Lines that are too wide lose the end of their last column. If that is not enough, gaps get narrower, and the
    first column is cut too.
    """
    cells = _cells(rows if no_header else [header, *rows])
    gap = GAP if width is None or _least(cells, GAP) <= width else NARROW_GAP
    excess = _least(cells, gap) - width if width is not None else 0
    if excess > 0:
        first = max(1, max(len(row[0]) for row in cells) - excess)
        cells = [[_cut(row[0], first), *row[1:]] for row in cells]
    widths = _widths(cells)
    return [_line(row, widths, gap, _state(header), width) for row in cells]


def wrapped(header: Sequence[str], rows: Rows, width: int | None, no_header: bool = False) -> list[str]:
    cells = _cells(rows if no_header else [header, *rows])
    widths, gap = _widths(cells), GAP
    if width is not None:
        gap = GAP if _head(cells, GAP) + WRAPPED_LEAST <= width else NARROW_GAP
        remaining = max(width - _head(cells, gap), LEAST)
        cells = [part for row in cells for part in _parts(row, remaining)]
    return [_line(row, widths, gap, _state(header), None) for row in cells]


def fits(header: Sequence[str], rows: Rows, no_header: bool, width: int | None, whole: bool = True) -> bool:
    """Whether nothing would be cut; without `whole`, nothing but the last column."""
    if width is None:
        return True
    cells = _cells(rows if no_header else [header, *rows])
    if not whole:
        return _least(cells, NARROW_GAP) <= width
    return _head(cells, GAP) + max((len(row[-1]) for row in cells), default=0) <= width


def clock(nanoseconds: int) -> str:
    """A time in the local zone, with its offset."""
    at = datetime.fromtimestamp(nanoseconds / 1e9).astimezone()
    return at.isoformat(" ", "seconds").replace("+00:00", "Z")


def coloured(word: str) -> str:
    """A state in its colour, if the terminal has colours."""
    return painted(word, COLOURS.get(word.lower()))


def painted(text: str, colour: int | None) -> str:
    return f"\033[{colour}m{text}\033[0m" if colour and has_colours() else text


@functools.cache
def has_colours() -> bool:
    if not sys.stdout.isatty():
        return False
    from rich.console import Console  # only here: it costs 20 ms, and it knows NO_COLOR and TERM

    console = Console()
    return console.color_system is not None and not console.no_color


def _yaml(value: Any) -> str:
    import yaml  # only here: it costs 10 ms

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def _cells(rows: Rows) -> list[list[str]]:
    return [[" ".join(cell.split()) for cell in row] for row in rows]


def _widths(cells: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*cells, strict=True)]


def _head(cells: list[list[str]], gap: str) -> int:
    """Where the last column begins."""
    return sum(width + len(gap) for width in _widths(cells)[:-1])


def _least(cells: list[list[str]], gap: str) -> int:
    """The width of the table with its last column cut to the least useful width."""
    return _head(cells, gap) + min(LEAST, max((len(row[-1]) for row in cells), default=0))


def _state(header: Sequence[str]) -> int | None:
    return next((i for i, title in enumerate(header) if title in ("STATE", "STATUS")), None)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _parts(row: list[str], width: int) -> Iterator[list[str]]:
    """The row, and rows below it with the rest of its last cell."""
    first, *rest = textwrap.wrap(row[-1], width, break_on_hyphens=False) or [""]
    yield [*row[:-1], first]
    yield from ([*[""] * (len(row) - 1), more] for more in rest)


def _line(row: list[str], widths: list[int], gap: str, state: int | None, width: int | None) -> str:
    padded = [cell.ljust(w) for cell, w in zip(row, widths, strict=True)]
    line = gap.join(padded).rstrip()
    if width is not None:
        line = _cut(line, width)
    if state is None:
        return line
    start = sum(widths[:state]) + state * len(gap)
    end = start + len(row[state])
    return line[:start] + coloured(line[start:end]) + line[end:]
