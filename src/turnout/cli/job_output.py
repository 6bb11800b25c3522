"""Jobs as the commands that change them print them: a sentence each, or a table, JSON or YAML of all."""

from collections.abc import Sequence

from turnout.cli import table
from turnout.cli.client import Document
from turnout.cli.options import Form

_HEADER = ["ID", "NAME", "API", "PROJECT", "CLUSTER", "STATE", "CREATED"]


def show(jobs: Sequence[Document], output: Form, done: str) -> None:
    """`done` ends the sentence about each job: `is stopping`."""
    match output:
        case Form.TABLE:
            for job in jobs:
                print(f"{job['name']} ({job['id']}) of project {job['project']} {done}.", flush=True)
        case Form.WIDE:
            table.show(_HEADER, [_row(job) for job in jobs], whole=True)
        case Form.JSON | Form.YAML:
            table.show_document(jobs, output)


def _row(job: Document) -> list[str]:
    head = [job["id"], job["name"], job["dialect"], job["project"], job["cluster"], job["state"]]
    return [*head, table.clock(job["created"])]
