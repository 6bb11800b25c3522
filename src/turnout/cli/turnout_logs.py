"""`turnout logs`: shows the output of a job of any API."""

import sys

from turnout.cli import table
from turnout.cli.client import Client, Document
from turnout.cli.entry import mention_older, print_error
from turnout.cli.login import connect
from turnout.cli.options import Form
from turnout.cli.wait import NOT_STARTED
from turnout.errors import Invalid, NotFound

COLOURS = (36, 33, 32, 35, 34)
"""The colours of the replicas' names, used in turn."""


def logs(
    job: str, trial: str, follow: bool, cluster: str, project: str, endpoint: str | None, output: Form
) -> None:
    client = connect(endpoint, project=project)
    client.notify = lambda text: print_error("turnout", text)
    view = client.get("jobs", job, cluster=cluster)
    mention_older("turnout", job, view)
    if trial:
        view = client.get("jobs", _trial(_trials(client, view), trial, job)["job"])
    if follow:
        view = _started(client, view)
    if not view["replicas"] and (trials := _trials(client, view)):
        raise Invalid(
            f"{job} is a search, and only its trials have logs: "
            f"try `turnout logs {job} --trial {trials[-1]['number']}`; `turnout explain {job}` lists them"
        )
    silent = _show(client, view, follow, output)
    if silent and sys.stdout.isatty():
        print_error("turnout", f"{job} printed nothing{'' if follow or view['ended'] else ' yet'}")


def show_log(client: Client, view: Document) -> None:
    """Shows the log of a job from its start until it has ended. A search has none."""
    _show(client, _started(client, view), follow=True, output=Form.TABLE)


def _started(client: Client, view: Document) -> Document:
    """Before the start its replicas are not known."""
    while view["state"] in NOT_STARTED:
        view = client.wait(view["id"], "started")
    return view


def _show(client: Client, view: Document, follow: bool, output: Form) -> bool:
    """Returns whether there were no lines."""
    names = [replica["name"] for replica in view["replicas"]]
    silent = True
    for lines in client.follow(view["id"], follow):
        silent = False
        shown = (
            table.document_line(line, output) if output.is_document else _text(line, names) for line in lines
        )
        print("\n".join(shown), flush=True)
    return silent


def _trials(client: Client, view: Document) -> list[Document]:
    return client.get("jobs", view["id"], "explain")["trials"]


def _trial(trials: list[Document], wanted: str, job: str) -> Document:
    """Finds a trial by its number or its id."""
    found = next((trial for trial in trials if wanted in (str(trial["number"]), trial["id"])), None)
    if found:
        return found
    if not trials:
        raise Invalid(f"{job} has no trials: omit --trial")
    raise NotFound(f"{job} has no trial {wanted}; its trials are 1 to {trials[-1]['number']}")


def _text(line: Document, names: list[str]) -> str:
    """Begins with the replica's name if there are several."""
    if len(names) < 2:
        return line["text"]
    name = line["replica"]
    colour = COLOURS[names.index(name) % len(COLOURS)]
    return f"{table.painted(f'[{name}]', colour)}{' ' * (max(map(len, names)) - len(name))} {line['text']}"
