"""`turnout cluster`: lists the clusters, checks them, drains them for maintenance, and prints manifests for them."""

from typing import Annotated

import typer

from turnout.cli import help
from turnout.cli.options import Endpoint, Form, Output
from turnout.errors import NotFound

Name = Annotated[str, typer.Argument(metavar="CLUSTER")]

ConfigFile = Annotated[
    str | None, typer.Option("--config", metavar="file", help="settings file (default: TURNOUT_CONFIG)")
]

app = help.group("List clusters; check and drain them, which needs the root key.")


@help.command(app, "list", "turnout cluster list --output json")
def list_clusters(endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """List the clusters: which engine each has, and whether it starts jobs."""
    from turnout.cli import table
    from turnout.cli.login import connect

    clusters = connect(endpoint).get("clusters")["clusters"]
    if output.is_document:
        return table.show_document(clusters, output)
    rows = [[one["name"], one["engine"], _state(one)] for one in clusters]
    return table.show_wrapped(["CLUSTER", "ENGINE", "STATE"], rows, whole=output is Form.WIDE)


@help.command(app, "check", "turnout cluster check gpu")
def check(name: Name, endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """Check a cluster: its software, its rights or resources, and whether a node reaches the service.

    Runs a job of one line on a node, so it can take a minute.
    """
    from turnout.cli import table
    from turnout.cli.login import connect

    results: list[dict[str, object]] = []
    for result in connect(endpoint).check_cluster(name):
        results.append(result)
        if not output.is_document:
            detail = f": {result['detail']}" if result["detail"] else ""
            print(f"{'ok    ' if result['ok'] else 'failed'}  {result['what']}{detail}", flush=True)
    if output.is_document:
        table.show_document(results, output)
    if not all(result["ok"] for result in results):
        raise typer.Exit(1)


@help.command(app, "manifest", "turnout cluster manifest cls-rgaisoe4 | kubectl apply -f -")
def manifest(name: Name, config: ConfigFile = None) -> None:
    """Print what the administrator of a Kubernetes cluster has to create: a service account and its rights.

    Reads the settings, and needs no running service.
    """
    from turnout.config import load
    from turnout.engines.kubernetes import KubernetesSettings
    from turnout.engines.kubernetes.manifest import manifest as text

    clusters = load(config).all_clusters()
    if name not in clusters or clusters[name].engine != "kubernetes":
        known = ", ".join(one for one, found in clusters.items() if found.engine == "kubernetes") or "none"
        raise NotFound(
            f"the settings have no cluster {name!r} with engine = 'kubernetes'; there are: {known}"
        )
    print(text(KubernetesSettings.of(clusters[name], {})), end="")


@help.command(app, "drain", "turnout cluster drain gpu")
def drain(name: Name, endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """Start no more jobs on a cluster, also after a restart of the service. Running and submitted jobs go on."""
    _change(name, "drain", endpoint, output)
    if not output.is_document:
        print(f"{name} takes no new jobs. Undo it with: turnout cluster resume {name}")


@help.command(app, "resume", "turnout cluster resume gpu")
def resume(name: Name, endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """Start jobs on a drained cluster again."""
    _change(name, "resume", endpoint, output)
    if not output.is_document:
        print(f"{name} takes new jobs again.")


def _change(name: str, action: str, endpoint: str | None, output: Form) -> None:
    """For programs, prints the cluster as it is then."""
    from turnout.cli import table
    from turnout.cli.login import connect

    client = connect(endpoint)
    client.send("POST", "clusters", name, action, query={})
    if output.is_document:
        clusters = client.get("clusters")["clusters"]
        table.show_document(next(one for one in clusters if one["name"] == name), output)


def _state(cluster: dict[str, str]) -> str:
    if cluster["trouble"]:
        return cluster["trouble"]
    return "drained: it takes no new jobs" if cluster["drained"] else "ready"
