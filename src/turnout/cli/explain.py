"""`turnout explain`: prints a job's state, the reasons for it, its replicas and events."""

import time
from datetime import datetime

from turnout.cli import table
from turnout.cli.client import Document
from turnout.cli.entry import mention_older
from turnout.cli.login import connect
from turnout.cli.options import Form
from turnout.cli.wait import duration

MAX_WORKSPACES = 4
MAX_TRIALS = 10


def explain(job: str, cluster: str, project: str, endpoint: str | None, output: Form) -> None:
    view = connect(endpoint, project=project).get("jobs", job, "explain", cluster=cluster)
    mention_older("turnout", job, view)
    if output.is_document:
        return table.show_document(view, output)
    print(_headline(view))
    for sentence in (*view["why"], *_kept(view)):
        for line in table.paragraph(sentence, "  "):
            print(line)
    if view["replicas"]:
        print()
        rows = [_replica(replica) for replica in view["replicas"]]
        table.show_wrapped(["REPLICA", "STATE", "TIME", "END", "MESSAGE"], rows, whole=output is Form.WIDE)
    if last := view.get("last_lines"):
        print(f"\nThe last lines of {last['replica']} (`turnout logs {view['id']}` shows all):")
        for line in last["lines"]:
            print(f"  {line}")
    if view.get("trials"):
        print()
        header, rows = (
            ["TRIAL", "ID", "STATE", "TIME", "VALUE", "PARAMETERS", "MESSAGE"],
            _trials(view["trials"]),
        )
        if not any(row[-1] for row in rows):
            header, rows = header[:-1], [row[:-1] for row in rows]
        table.show_wrapped(header, rows, whole=output is Form.WIDE)
    if view["events"]:
        print()
        table.show_wrapped(
            ["WHEN", "EVENT", "MESSAGE"], [_event(e) for e in view["events"]], whole=output is Form.WIDE
        )
    return None


def _headline(view: Document) -> str:
    waits = view.get("queue")
    queue = f", {waits['place']} of {waits['of']} in the queue" if waits else ""
    place = view.get("place", f"on {view['cluster']}")
    where = f" {place}" if place else ""
    return f"{view['name']} ({view['id']}){where}: {table.coloured(view['state'])}{queue}"


def _kept(view: Document) -> list[str]:
    paths = view["workspaces"]
    hidden = len(paths) - MAX_WORKSPACES
    rest = [f"Kept for debugging: {hidden} more in the same directory"] if hidden > 0 else []
    return [f"Kept for debugging: {path}" for path in paths[:MAX_WORKSPACES]] + rest


def _replica(replica: Document) -> list[str]:
    return [replica["name"], replica["state"], _took(replica), _end(replica), replica.get("message") or ""]


def _trials(trials: list[Document]) -> list[list[str]]:
    """The last few. `--output json` shows all."""
    shown = [
        [
            str(trial["number"]),
            trial["id"],
            trial["state"],
            _took(trial),
            _short(trial["value"]),
            ", ".join(f"{name}={_short(value)}" for name, value in trial["parameters"].items()),
            trial["message"],
        ]
        for trial in trials[-MAX_TRIALS:]
    ]
    before = len(trials) - len(shown)
    return (
        [["…", "", "", "", "", f"{before} earlier trials: see --output json", ""], *shown]
        if before
        else shown
    )


def _short(value: object) -> str:
    """Few digits; `--output json` has all."""
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _took(item: Document) -> str:
    if item["started"] is None:
        return ""
    return duration(((item["ended"] or time.time_ns()) - item["started"]) / 1e9)


def _end(replica: Document) -> str:
    if replica.get("signal"):
        return f"signal {replica['signal']}"
    return "" if replica.get("exit_code") is None else f"exit {replica['exit_code']}"


def _event(event: Document) -> list[str]:
    at = datetime.fromtimestamp(event["at"] / 1e9).astimezone().isoformat(" ", "milliseconds")
    return [at.replace("+00:00", "Z"), event["kind"], event["message"]]
