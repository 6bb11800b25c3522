"""`turnout sweep`: deletes what is older than `[limits]` allows, or shows what it would delete."""

from turnout.cli import table
from turnout.cli.login import connect
from turnout.cli.options import Form


def sweep(dry_run: bool, endpoint: str | None, output: Form) -> None:
    found = connect(endpoint).sweep(dry_run)
    if output.is_document:
        return table.show_document(found, output)
    rows = [
        [row["what"], str(row["count"] or ""), str(row["rows"] or ""), _size(row["bytes"]), row["setting"]]
        for row in found
    ]
    return table.show_wrapped(
        ["WOULD DELETE" if dry_run else "DELETED", "COUNT", "ROWS", "SIZE", "[limits]"],
        rows,
        whole=output is Form.WIDE,
    )


def _size(count: int) -> str:
    if not count:
        return ""
    size, unit = float(count), 0
    while size >= 1000 and unit < 4:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[unit]}"
