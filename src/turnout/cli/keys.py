"""`turnout keys`: who else may use the service, each in a project of their own."""

from typing import Annotated

import typer

from turnout.cli import help
from turnout.cli.options import Endpoint, Form, NoHeader, Output
from turnout.errors import Invalid

app = help.group("Keys of projects; only root may make, see and revoke them")


@help.command(
    app,
    "create",
    """
    turnout keys create --project vision --label "Ann, laptop"
    turnout keys create --project vision --google --out account.json
    """,
)
def create(
    project: Annotated[str, typer.Option("--project", help="where the key may act, and nowhere else")],
    label: Annotated[str, typer.Option("--label", help="whose it is, for people")] = "",
    google: Annotated[
        bool, typer.Option("--google", help="as a service account's file for Google's libraries")
    ] = False,
    out: Annotated[
        str, typer.Option("--out", metavar="file", help="with --google; else standard output")
    ] = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Make a key. Its secret is shown once, now.

    GOOGLE_APPLICATION_CREDENTIALS may name the file that --google writes.
    """
    import json

    from turnout.cli import table
    from turnout.cli.login import connect

    if google:
        from turnout.cli import account

        return account.create(connect(endpoint), project, label, out)
    if out:
        raise Invalid("--out goes with --google")
    body = json.dumps({"project": project, "label": label}).encode()
    client = connect(endpoint)
    key = client.send("POST", "keys", query={}, body=body)
    if output == Form.JSON:
        return table.show_json(key)
    print(f"A key for project {key['project']}; its secret is not shown again:")
    print(f"  export TURNOUT_ENDPOINT={client.endpoint} TURNOUT_KEY={key['id']}:{key['secret']}")
    return None


@help.command(app, "list", "turnout keys list --output json")
def list_keys(no_header: NoHeader = False, endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """The keys there are, root's first, without their secrets."""
    from turnout.cli import table
    from turnout.cli.login import connect

    known = connect(endpoint).get("keys")["keys"]
    if output == Form.JSON:
        return table.show_json(known)
    rows = [
        [
            key["id"],
            "(every one)" if key["root"] else key["project"],
            table.clock(key["created"]) if key["created"] else "",
            key["label"],
        ]
        for key in known
    ]
    return table.show_wrapped(["ID", "PROJECT", "CREATED", "LABEL"], rows, no_header)


@help.command(app, "revoke", "turnout keys revoke AKIDx7Hq2mD0c9TgVb4nWzRe")
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID [ID...]")], endpoint: Endpoint = None
) -> None:
    """Refuse from now on what these keys sign, and the tokens made from them. Their jobs go on."""
    from turnout.cli.login import connect

    client = connect(endpoint)
    for key_id in ids:
        client.send("DELETE", "keys", key_id, query={})
        print(f"The key {key_id} is revoked.")
