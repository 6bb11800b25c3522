"""`turnout cluster`: lists the clusters, checks them, and drains them for maintenance."""

from typing import Annotated

import typer

from turnout.cli import help
from turnout.cli.options import Endpoint, Form, Output

Name = Annotated[str, typer.Argument(metavar="CLUSTER")]

app = help.group("List clusters; check and drain them, which needs the root key")


@help.command(app, "list", "turnout cluster list --output json")
def list_clusters(endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """List the clusters: which engine each has, and whether it starts jobs."""
    from turnout.cli import table
    from turnout.cli.login import connect

    clusters = connect(endpoint).get("clusters")["clusters"]
    if output == Form.JSON:
        return table.show_json(clusters)
    rows = [[one["name"], one["engine"], _state(one)] for one in clusters]
    return table.show_wrapped(["CLUSTER", "ENGINE", "STATE"], rows)


@help.command(app, "check", "turnout cluster check gpu")
def check(name: Name, endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """Check a cluster: its commands, its partition, and whether a node reaches the service.

    Runs a job of one line on a node, so it can take a minute.
    """
    from turnout.cli import table
    from turnout.cli.login import connect

    results: list[dict[str, object]] = []
    for result in connect(endpoint).check_cluster(name):
        results.append(result)
        if output == Form.TABLE:
            detail = f": {result['detail']}" if result["detail"] else ""
            print(f"{'ok    ' if result['ok'] else 'failed'}  {result['what']}{detail}", flush=True)
    if output == Form.JSON:
        table.show_json(results)
    if not all(result["ok"] for result in results):
        raise typer.Exit(1)


@help.command(app, "drain", "turnout cluster drain gpu")
def drain(name: Name, endpoint: Endpoint = None) -> None:
    """Start no more jobs on a cluster, also after a restart of the service. Running and submitted jobs go on."""
    from turnout.cli.login import connect

    connect(endpoint).send("POST", "clusters", name, "drain", query={})
    print(f"{name} takes no new jobs. Undo it with: turnout cluster resume {name}")


@help.command(app, "resume", "turnout cluster resume gpu")
def resume(name: Name, endpoint: Endpoint = None) -> None:
    """Start jobs on a drained cluster again."""
    from turnout.cli.login import connect

    connect(endpoint).send("POST", "clusters", name, "resume", query={})
    print(f"{name} takes new jobs again.")


def _state(cluster: dict[str, str]) -> str:
    if cluster["trouble"]:
        return cluster["trouble"]
    return "drained: it takes no new jobs" if cluster["drained"] else "ready"
