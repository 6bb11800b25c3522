"""Jobs as the commands that change them print them: a sentence each, or a table, JSON or YAML of all."""

from collections.abc import Sequence

from turnout.cli import table
from turnout.cli.client import Document
from turnout.cli.options import ListForm

_HEADER = ["ID", "NAME", "API", "PROJECT", "CLUSTER", "STATE", "CREATED"]


def show(jobs: Sequence[Document], output: ListForm, done: str) -> None:
    """`done` ends the sentence about each job: `is stopping`."""
    match output:
        case ListForm.TABLE:
            for job in jobs:
                print(f"{job['name']} ({job['id']}) of project {job['project']} {done}.", flush=True)
        case ListForm.WIDE:
            table.show(_HEADER, [_row(job) for job in jobs], whole=True)
        case ListForm.JSON:
            table.show_json(jobs)
        case ListForm.YAML:
            table.show_yaml(jobs)


def _row(job: Document) -> list[str]:
    head = [job["id"], job["name"], job["dialect"], job["project"], job["cluster"], job["state"]]
    return [*head, table.clock(job["created"])]
