"""`tictl`: the command line of TI-A."""

import sys
from typing import Annotated, NoReturn

import typer

from turnout import __version__, config
from turnout.cli import clusters, command_line, help, jobs, language, table, tictl_logs
from turnout.cli.client import Client, Credentials, Document
from turnout.cli.language import say
from turnout.cli.login import Login, connect, find_key, remove, save, stored
from turnout.cli.options import Cluster, Endpoint, Form, NoHeader, NoTruncate, Output, Region
from turnout.errors import Invalid, NotFound

VERSION = f"tictl version {__version__}+turnout"

app = help.group("Training jobs on your own Turnout service", VERSION)


def main() -> NoReturn:
    language.choose()
    command_line.run(app, "tictl")


@help.command(app, "version")
def version() -> None:
    """Show the version"""
    print(VERSION)


@help.command(
    app,
    "login",
    """
    tictl login --si=<id> --sk=<secret> --region=ap-beijing --cluster=ap-beijing
    tictl login --endpoint=http://gpu-box:8470      # asks for the key
    tictl login --info
    """,
)
def login(
    si: Annotated[str, typer.Option("--si", help="secret id (default: from TURNOUT_KEY, or asks)")] = "",
    sk: Annotated[str, typer.Option("--sk", help="secret key")] = "",
    region: Region = "",
    cluster: Cluster = "",
    info: Annotated[bool, typer.Option("--info", help="show the current login")] = False,
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Store key, endpoint and default cluster for the other commands"""
    if info:
        return show_login("tictl", endpoint, output)
    before = stored()
    client = connect(endpoint, before)
    client.key = _key(client, si, sk, before)
    client.get("whoami")
    kept = Login(client.endpoint, *client.key, region or before.region, cluster or before.cluster)
    if cluster:
        chosen = clusters.find(client, cluster)
        kept.region, kept.cluster = region or chosen["region"], chosen["name"]
    save(kept)
    if output.is_document:
        return table.show_document(_summary(kept), output)
    return print(say("user logged in with secret id `{id}`", id=client.key.id))


@help.command(app, "logout")
def logout() -> None:
    """Remove the stored key, endpoint and default cluster"""
    print(say("user logged out") if remove() else say("there was no login"))


@help.command(app, "user")
def user(
    no_header: NoHeader = False,
    no_truncate: NoTruncate = False,
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Show whose key is in use"""
    who = connect(endpoint).get("whoami")
    if output.is_document:
        return table.show_document(who, output)
    row = [who["key"], str(who["root"]).lower(), "", ""]
    return table.show(
        ["NAME", "ISOWNER", "MAIL", "PHONE"], [row], no_header, no_truncate or output is Form.WIDE
    )


app.add_typer(clusters.app, name="cluster")
app.add_typer(jobs.app, name="job")
tictl_logs.add(app)


help.refusal(app, "model", "`tictl model` is not supported: Turnout does not serve models yet")
help.refusal(
    app,
    "install",
    "`tictl install` is not needed: Turnout runs jobs itself, without an agent",
)


def _key(client: Client, si: str, sk: str, before: Login) -> Credentials:
    if si and sk:
        return Credentials(si, sk)
    if si and si == before.secret_id:
        return Credentials(si, before.secret_key)
    if sk:
        raise Invalid("--sk needs --si, the secret id that it belongs to")
    asks = sys.stdin.isatty() and not config.client_key()
    if not si and not asks and (known := find_key(client.endpoint, before)):
        return known
    if not sys.stdin.isatty():
        raise Invalid("give the key with --si <id> --sk <secret>, or TURNOUT_KEY=<id>:<secret>")
    return _ask_for_key(si, before)


def _ask_for_key(si: str, before: Login) -> Credentials:
    """Prompts for the key. An empty answer keeps the stored value."""
    id = si or typer.prompt("secret id", default=before.secret_id or None)
    if id != before.secret_id:
        return Credentials(id, typer.prompt("secret key", hide_input=True))
    secret = typer.prompt(
        "secret key (Enter keeps it)", default=before.secret_key, hide_input=True, show_default=False
    )
    return Credentials(id, secret)


def show_login(program: str, endpoint: str | None, output: Form) -> None:
    login = stored()
    if not login.secret_id:
        raise NotFound(f"there is no login: run `{program} login --si <id> --sk <secret>`")
    if output.is_document:
        return table.show_document(_summary(login), output)
    region, cluster = login.region_and_cluster()
    print(say("user logged in with secret id `{id}`", id=login.secret_id))
    print(say("The endpoint is `{endpoint}`", endpoint=connect(endpoint, login).endpoint))
    return print(clusters.default_line(region, cluster))


def _summary(login: Login) -> Document:
    """The login without its secret."""
    region, cluster = login.region_and_cluster()
    return {"endpoint": login.endpoint, "secret_id": login.secret_id, "region": region, "cluster": cluster}


if __name__ == "__main__":
    main()
