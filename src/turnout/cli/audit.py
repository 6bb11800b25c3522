"""`turnout audit`: who changed what."""

from turnout.cli import table
from turnout.cli.client import Document
from turnout.cli.login import connect
from turnout.cli.options import Form

HEADER = ["TIME", "WHO", "FROM", "PROJECT", "API", "CALL", "WHAT", "ANSWER"]
_PAGE = 500


def audit(query: dict[str, str], limit: int, project: str, endpoint: str | None, output: Form) -> None:
    client = connect(endpoint, project=project)
    lines: list[Document] = []
    cursor = ""
    while True:
        size = min(limit - len(lines), _PAGE) if limit else _PAGE
        page = client.send("GET", "audit", query=query | {"limit": str(size), "cursor": cursor})
        lines += page["lines"]
        cursor = page["next"]
        if not cursor or len(lines) == limit:
            break
    if output.is_document:
        return table.show_document(lines, output)
    return table.show_wrapped(HEADER, [_row(line) for line in lines], whole=output is Form.WIDE)


def _row(line: Document) -> list[str]:
    what = line["subject"] or line["job"] or ""
    answer = f"{line['status']} {line['code']}".strip()
    who = [table.clock(line["at"]), line["who"], line["peer"], line["project"], line["api"]]
    return [*who, line["call"], what, answer]
