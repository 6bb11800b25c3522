"""`turnout explain`: a job's state, the reasons for it, its replicas and what happened, for people."""

import time
from datetime import datetime

from turnout.cli import table
from turnout.cli.client import Document
from turnout.cli.login import connect
from turnout.cli.options import Form
from turnout.cli.wait import duration

FEW = 4


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
    took = ""
    if replica["started"] is not None:
        took = duration(((replica["ended"] or time.time_ns()) - replica["started"]) / 1e9)
    return [replica["name"], replica["state"], took, _end(replica), replica.get("message") or ""]


def _end(replica: Document) -> str:
    if replica.get("signal"):
        return f"signal {replica['signal']}"
    return "" if replica.get("exit_code") is None else f"exit {replica['exit_code']}"


def _event(event: Document) -> list[str]:
    at = datetime.fromtimestamp(event["at"] / 1e9).astimezone().isoformat(" ", "milliseconds")
    return [at.replace("+00:00", "Z"), event["kind"], event["message"]]
