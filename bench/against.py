"""Compares a run with an earlier one: each row before and after, and the factor between them."""

from collections.abc import Iterable
from typing import NamedTuple

from bench.table import Row, Table, number

TOLERANCE = 0.05


class Change(NamedTuple):
    before: Row
    after: Row
    factor: float
    """The change of the ratio to the floor, or of the measured value if there is no floor."""

    @property
    def is_worse(self) -> bool:
        """Whether it got worse by more than the tolerance."""
        if self.after.better == "more":
            return self.factor < 1 - TOLERANCE
        return self.factor > 1 + TOLERANCE


def compare(before: Iterable[Row], after: Iterable[Row]) -> list[Change]:
    """The rows that both runs have. Compares ratios, because floors change with the machine."""
    earlier = {row.name: row for row in before}
    changes: list[Change] = []
    for row in after:
        old = earlier.get(row.name)
        if old is None:
            continue
        was, now = (old.ratio, row.ratio) if old.ratio and row.ratio else (old.measured, row.measured)
        # An idle service uses 0 % of a core.
        changes.append(Change(old, row, now / was if was else 1.0 if not now else float("inf")))
    return changes


def show(table: Table, before: Iterable[Row]) -> None:
    before = list(before)
    changes = compare(before, table.rows)
    table.line("bold", "beside the earlier run", "before", "after", "", "factor", "")
    for change in changes:
        old, new = change.before, change.after
        by_ratio = old.ratio and new.ratio
        shown = [f"{row.ratio:.2f}" if by_ratio else number(row.measured, row.unit) for row in (old, new)]
        verdict = "WORSE" if change.is_worse else ""
        table.line("red" if verdict else "green", new.name, *shown, "", f"{change.factor:.2f}", verdict)
    known = {change.after.name for change in changes}
    for side, rows in (("only before", before), ("only now", table.rows)):
        if names := [row.name for row in rows if row.name not in known]:
            table.note(f"{side}: {', '.join(names)}")
