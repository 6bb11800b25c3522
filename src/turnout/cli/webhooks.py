"""`turnout webhooks`: which messages wait for each webhook, and which it did not accept."""

from turnout.cli import table
from turnout.cli.login import connect
from turnout.cli.options import Form

HEADER = ["NAME", "ADDRESS", "FORMAT", "WAITING", "FAILING", "GIVEN UP", "TROUBLE"]
FAILURES = ["WEBHOOK", "JOB", "SINCE", "ATTEMPTS", "NEXT", "ERROR"]


def webhooks(endpoint: str | None, output: Form) -> None:
    found = connect(endpoint).get("webhooks")["webhooks"]
    if output.is_document:
        return table.show_document(found, output)
    rows = [
        [
            one["name"],
            one["address"],
            one["format"],
            *(str(one[name]) for name in ("waiting", "failing", "given_up")),
            one["trouble"],
        ]
        for one in found
    ]
    table.show_wrapped(HEADER, rows, whole=output is Form.WIDE)
    failures = [
        [
            hook["name"],
            one["job"],
            table.clock(one["at"]),
            str(one["attempts"]),
            _next(one["next_at"]),
            one["error"],
        ]
        for hook in found
        for one in hook["failures"]
    ]
    if failures:
        print()
        table.show_wrapped(FAILURES, failures, whole=output is Form.WIDE)
    return None


def _next(at: int | None) -> str:
    return table.clock(at) if at else "given up"
