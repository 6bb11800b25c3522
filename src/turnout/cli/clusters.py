"""`tictl cluster`: lists the clusters and sets the default one."""

import difflib
import sys
from typing import Annotated

import typer

from turnout.cli import help, table
from turnout.cli.client import Client, Document
from turnout.cli.language import say
from turnout.cli.login import connect, save, stored
from turnout.cli.options import Endpoint, Form, NoHeader, NoTruncate, Output
from turnout.errors import Invalid, NotFound

HEADER = ["REGION", "CLUSTER ID"]

app = help.group("Clusters")


@help.command(app, "list", "tictl cluster list --default")
def list_clusters(
    default: Annotated[bool, typer.Option("-d", "--default", help="show the default cluster only")] = False,
    no_header: NoHeader = False,
    no_truncate: NoTruncate = False,
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """List the clusters, private ones first, or show the default one"""
    login = stored()
    region, cluster = login.region_and_cluster()
    if default and output.is_document:
        return table.show_document({"region": region, "cluster": cluster}, output)
    if default:
        return print(default_line(region, cluster))
    known = _clusters(connect(endpoint, login))
    if output.is_document:
        return table.show_document(known, output)
    return table.show(HEADER, _rows(known), no_header, no_truncate or output is Form.WIDE)


@help.command(
    app,
    "switch",
    """
    tictl cluster switch                        # lists the clusters and asks
    tictl cluster switch -r ap-shanghai -c cls-002
    """,
)
def switch(
    region: Annotated[
        str, typer.Option("-r", "--region", help="its region (default: that of the cluster)")
    ] = "",
    cluster: Annotated[str, typer.Option("-c", "--cluster", help="the new default cluster")] = "",
    endpoint: Endpoint = None,
) -> None:
    """Set the default cluster"""
    login = stored()
    client = connect(endpoint, login)
    if not cluster:
        cluster = _ask(client)
    chosen = find(client, cluster)
    login.region, login.cluster = region or chosen["region"], chosen["name"]
    save(login)
    text = "The default cluster is set as `{region}: {cluster}`"
    print(say(text, region=login.region, cluster=login.cluster))


def find(client: Client, name: str) -> Document:
    known = {cluster["name"]: cluster for cluster in _clusters(client)}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"
    raise NotFound(f"there is no cluster {name!r}; {hint}")


def default_line(region: str, cluster: str) -> str:
    return say("The default cluster is `{region}` `{cluster}`", region=region, cluster=cluster)


def _clusters(client: Client) -> list[Document]:
    known = client.get("clusters")["clusters"]
    return sorted(
        (cluster | {"region": cluster.get("region") or cluster["name"]} for cluster in known), key=_is_shared
    )


def _is_shared(cluster: Document) -> bool:
    return cluster["shared"]


def _rows(clusters: list[Document]) -> list[list[str]]:
    return [[cluster["region"], cluster["name"]] for cluster in clusters]


def _ask(client: Client) -> str:
    if not sys.stdin.isatty():
        raise Invalid("name a cluster with -c <cluster>; `tictl cluster list` shows them")
    known = _clusters(client)
    for title, shared in (("Private clusters", False), ("Shared clusters", True)):
        table.show([title, ""], [])
        table.show(HEADER, _rows([cluster for cluster in known if cluster["shared"] is shared]))
        print()
    return input("Please input the cluster ID you want to switch to: ").strip()
