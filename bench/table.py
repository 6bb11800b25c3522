"""The results, as a table and as JSON."""

from collections.abc import Callable
from typing import Literal

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

WIDTHS = (58, 15, 15, 8, 9, 5)
Step = Callable[[], None]


class Row(msgspec.Struct, omit_defaults=True):
    """One result. Without a target it is only for comparison."""

    name: str
    what: str
    measured: float
    unit: str
    floor: float | None = None
    target: float | None = None
    better: Literal["less", "more"] = "less"
    judged: Literal["ratio", "measured"] = "ratio"
    detail: dict[str, float] = {}
    ratio: float | None = None
    ok: bool | None = None

    def __post_init__(self) -> None:
        if self.floor:
            self.ratio = self.measured / self.floor
        value = self.ratio if self.judged == "ratio" else self.measured
        if self.target is not None and value is not None:
            self.ok = value <= self.target if self.better == "less" else value >= self.target


class Table:
    """Prints each row as soon as it is known, and a progress bar meanwhile."""

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.rows: list[Row] = []
        self._console = Console(highlight=False, soft_wrap=True)
        bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.progress = Progress(*bar, console=self._console, transient=True)

    def head(self) -> None:
        self.line("bold", "what", "measured", "floor", "ratio", "target", "")

    def add(self, row: Row) -> None:
        self.rows.append(row)
        sign = {"less": "≤", "more": "≥"}[row.better]
        target = "" if row.target is None else f"{sign} {row.target:g}"
        verdict = {True: "ok", False: "MISS", None: ""}[row.ok]
        style = {True: "green", False: "red", None: "dim"}[row.ok]
        floor = "" if row.floor is None else number(row.floor, row.unit)
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        self.line(style, row.what, number(row.measured, row.unit), floor, ratio, target, verdict)

    def note(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False)

    def steps(self, what: str, total: int) -> Step:
        """Shows a progress bar. Call the returned function after each step."""
        task = self.progress.add_task(what, total=total)

        def step() -> None:
            self.progress.advance(task)
            if self.progress.tasks[self.progress.task_ids.index(task)].finished:
                self.progress.remove_task(task)

        return step

    def line(self, style: str, *cells: str) -> None:
        what, *rest = cells
        padded = [what.ljust(WIDTHS[0])] + [cell.rjust(w) for cell, w in zip(rest, WIDTHS[1:], strict=True)]
        self._console.print(" ".join(padded), style=style, markup=False)


def number(value: float, unit: str) -> str:
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2
    return f"{value:,.{digits}f} {unit}"
