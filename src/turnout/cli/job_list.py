"""`turnout jobs`: the jobs of all APIs."""

import sys
import time
from typing import Any

from turnout.cli import table
from turnout.cli.client import Client, Document
from turnout.cli.entry import print_error
from turnout.cli.login import connect
from turnout.cli.options import Form
from turnout.cli.wait import duration

HEADER = ["NAME", "API", "PROJECT", "STATE", "CREATED", "RAN", "WHY"]
WIDE = [
    "ID",
    "NAME",
    "API",
    "PROJECT",
    "OWNER",
    "CLUSTER",
    "STATE",
    "PRIORITY",
    "CREATED",
    "RAN",
    "LABELS",
    "WHY",
]
_PAGE = 500
_APART = 0.5
"""Seconds between two readings of the list while it is watched."""
_CLEAR = "\033[H\033[2J"


def jobs(
    query: dict[str, str], limit: int, watch: bool, project: str, endpoint: str | None, output: Form
) -> None:
    client = connect(endpoint, project=project)
    client.notify = lambda text: print_error("turnout", text)
    if not watch:
        return _show(_read(client, query, limit), output)
    shown: dict[str, Document] = {}
    for _ in connect(endpoint, project=project).changes():
        rows = _read(client, query, limit)
        if sys.stdout.isatty() and output in (Form.TABLE, Form.WIDE):
            print(_CLEAR, end="")
            _show(rows, output)
        elif changed := [row for row in rows if shown.get(row["id"]) != row]:
            _show(changed, output, no_header=bool(shown))
        sys.stdout.flush()
        shown |= {row["id"]: row for row in rows}
        time.sleep(_APART)  # more changes may come at the same time; the list is read once for all of them
    return None


def _read(client: Client, query: dict[str, str], limit: int) -> list[Document]:
    """The first `limit` jobs; 0: all of them."""
    rows: list[Document] = []
    cursor = ""
    while True:
        size = min(limit - len(rows), _PAGE) if limit else _PAGE
        page = client.send("GET", "jobs", query=query | {"limit": str(size), "cursor": cursor})
        rows += page["jobs"]
        cursor = page["next"]
        if not cursor or len(rows) == limit:
            return rows


def _show(rows: list[Document], output: Form, no_header: bool = False) -> None:
    match output:
        case Form.JSON | Form.YAML:
            table.show_document(rows, output)
        case Form.WIDE:
            table.show(WIDE, [_wide(row) for row in rows], no_header, whole=True)
        case Form.TABLE:
            table.show(HEADER, [_narrow(row) for row in rows], no_header)


def _narrow(row: Document) -> list[str]:
    return [
        row["name"],
        row["dialect"],
        row["project"],
        row["state"],
        _ago(row["created"]),
        _ran(row),
        _why(row),
    ]


def _wide(row: Document) -> list[str]:
    labels = ",".join(f"{key}={value}" for key, value in row["labels"].items())
    created = table.clock(row["created"])
    head = [row["id"], row["name"], row["dialect"], row["project"], row["owner"]]
    head += [row["cluster"], row["state"]]
    return [*head, str(row["priority"]), created, _ran(row), labels, _why(row)]


def _why(row: Document) -> str:
    return row["waits_for"] or (row["message"] if row["state"] != "succeeded" else "")


def _ran(row: Document) -> str:
    if row["started"] is None:
        return "-"
    return duration(((row["ended"] or time.time_ns()) - row["started"]) / 1e9)


def _ago(at: Any) -> str:
    return f"{duration(max(0, time.time_ns() - at) / 1e9)} ago"
