"""`turnout keys`: creates, lists and revokes keys, each for one project."""

from typing import Annotated

import typer

from turnout.cli import help
from turnout.cli.options import Endpoint, Form, NoHeader, Output
from turnout.errors import Invalid

app = help.group("Create, list and revoke keys of projects; needs the root key.")


@help.command(
    app,
    "create",
    """
    turnout keys create --project vision --label "Ann, laptop"
    turnout keys create --project vision --google --out account.json
    """,
)
def create(
    project: Annotated[str, typer.Option("--project", help="the project that the key gives access to")],
    label: Annotated[str, typer.Option("--label", help="a note, for example whose key it is")] = "",
    google: Annotated[
        bool, typer.Option("--google", help="create a service account file for Google's libraries")
    ] = False,
    out: Annotated[
        str,
        typer.Option("--out", metavar="file", help="file to write with --google (default: standard output)"),
    ] = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Create a key for one project. Its secret is shown only once.

    Set GOOGLE_APPLICATION_CREDENTIALS to the file that --google writes.
    """
    import json

    from turnout.cli import table
    from turnout.cli.login import connect

    if google:
        from turnout.cli import account

        return account.create(connect(endpoint), project, label, out)
    if out:
        raise Invalid("--out works only with --google")
    body = json.dumps({"project": project, "label": label}).encode()
    client = connect(endpoint)
    key = client.send("POST", "keys", query={}, body=body)
    if output.is_document:
        return table.show_document(key, output)
    print(f"Created a key for project {key['project']}. Save its secret: it is not shown again.")
    print(f"  export TURNOUT_ENDPOINT={client.endpoint} TURNOUT_KEY={key['id']}:{key['secret']}")
    return None


@help.command(app, "list", "turnout keys list --output json")
def list_keys(no_header: NoHeader = False, endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """List the keys without their secrets, the root key first."""
    from turnout.cli import table
    from turnout.cli.login import connect

    known = connect(endpoint).get("keys")["keys"]
    if output.is_document:
        return table.show_document(known, output)
    rows = [
        [
            key["id"],
            "(all)" if key["root"] else key["project"],
            table.clock(key["created"]) if key["created"] else "",
            key["label"],
        ]
        for key in known
    ]
    return table.show_wrapped(
        ["ID", "PROJECT", "CREATED", "LABEL"], rows, no_header, whole=output is Form.WIDE
    )


@help.command(app, "revoke", "turnout keys revoke AKIDx7Hq2mD0c9TgVb4nWzRe")
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID [ID...]")],
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Revoke keys. Everything that was opened with them ends at once, except their jobs, which keep running."""
    from turnout.cli import table
    from turnout.cli.login import connect

    client = connect(endpoint)
    revoked: list[str] = []
    try:
        for key_id in ids:
            client.send("DELETE", "keys", key_id, query={})
            revoked.append(key_id)
            if not output.is_document:
                print(f"Revoked the key {key_id}.")
    finally:
        if output.is_document:
            table.show_document({"revoked": revoked}, output)
