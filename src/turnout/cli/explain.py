"""`turnout explain`: a job's state, the reasons for it, its replicas and what happened, for people."""

import time
from datetime import datetime

from turnout.cli import table
from turnout.cli.client import Document
from turnout.cli.login import connect
from turnout.cli.options import Form
from turnout.cli.wait import duration

FEW = 4
MOST_TRIALS = 10


def explain(job: str, cluster: str, endpoint: str | None, output: Form) -> None:
    view = connect(endpoint).get("jobs", job, "explain", cluster=cluster)
    if output == Form.JSON:
        return table.show_json(view)
    print(_headline(view))
    for sentence in (*view["why"], *_kept(view)):
        for line in table.paragraph(sentence, "  "):
            print(line)
    if view["replicas"]:
        print()
        table.show_wrapped(
            ["REPLICA", "STATE", "TIME", "END", "MESSAGE"], [_replica(r) for r in view["replicas"]]
        )
    if view.get("trials"):
        print()
        table.show_wrapped(["TRIAL", "ID", "STATE", "TIME", "VALUE", "MESSAGE"], _trials(view["trials"]))
    if view["events"]:
        print()
        table.show_wrapped(["WHEN", "EVENT", "MESSAGE"], [_event(e) for e in view["events"]])
    return None


def _headline(view: Document) -> str:
    place = view.get("queue")
    queue = f", {place['place']} of {place['of']} in the queue" if place else ""
    return f"{view['name']} ({view['id']}) on {view['cluster']}: {table.coloured(view['state'])}{queue}"


def _kept(view: Document) -> list[str]:
    places = view["workspaces"]
    rest = [f"Likewise {len(places) - FEW} more beside them."] if len(places) > FEW else []
    return [f"Kept for debugging: {place}" for place in places[:FEW]] + rest


def _replica(replica: Document) -> list[str]:
    return [replica["name"], replica["state"], _took(replica), _end(replica), replica.get("message") or ""]


def _trials(trials: list[Document]) -> list[list[str]]:
    """The last few; whoever wants all of them wants JSON."""
    shown = [
        [
            str(one["number"]),
            one["id"],
            one["state"],
            _took(one),
            "" if one["value"] is None else f"{one['value']:g}",
            one["message"] or ", ".join(f"{name}={value}" for name, value in one["parameters"].items()),
        ]
        for one in trials[-MOST_TRIALS:]
    ]
    before = len(trials) - len(shown)
    return [["…", "", "", "", "", f"{before} before (--output json)"], *shown] if before else shown


def _took(one: Document) -> str:
    if one["started"] is None:
        return ""
    return duration(((one["ended"] or time.time_ns()) - one["started"]) / 1e9)


def _end(replica: Document) -> str:
    if replica.get("signal"):
        return f"signal {replica['signal']}"
    return "" if replica.get("exit_code") is None else f"exit {replica['exit_code']}"


def _event(event: Document) -> list[str]:
    at = datetime.fromtimestamp(event["at"] / 1e9).astimezone().isoformat(" ", "milliseconds")
    return [at.replace("+00:00", "Z"), event["kind"], event["message"]]
