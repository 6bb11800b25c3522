"""`turnout image`: the container images of the service's machine."""

from pathlib import Path
from typing import Annotated, Any

import typer

from turnout.cli import help
from turnout.cli.options import Endpoint, Form, NoHeader, Output, Project

app = help.group("Pull, import, list and remove the container images that jobs run in.")

Name = Annotated[str, typer.Argument(metavar="NAME")]


@help.command(
    app,
    "ls",
    """
    turnout image ls
    turnout image ls --output json
    """,
)
def list_images(
    no_header: NoHeader = False, project: Project = "", endpoint: Endpoint = None, output: Output = Form.TABLE
) -> None:
    """List the images in the cache that the project may use; with the root key, all."""
    from turnout.cli import table

    found = _connect(endpoint, project).get("images")["images"]
    if output.is_document:
        return table.show_document(found, output)
    rows = [
        [
            _short(one["name"]),
            one["digest"].removeprefix("sha256:")[:12],
            _size(one["bytes"]),
            table.clock(one["pulled_at"] * 10**9),
            str(one["jobs"] or ""),
            one["source"] or (f"[registries.{one['registry']}]" if one["registry"] else ""),
        ]
        for one in found
    ]
    return table.show_wrapped(
        ["NAME", "DIGEST", "SIZE", "PULLED", "JOBS", "FROM"], rows, no_header, whole=output is Form.WIDE
    )


@help.command(
    app,
    "pull",
    """
    turnout image pull python:3.12
    turnout image pull registry.example.com/team/trainer:1 --project vision
    """,
)
def pull(name: Name, project: Project = "", endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """Bring an image from its registry into the cache, or its new version if the cache has an older one.

    Jobs pull what they need by themselves; this does it ahead.
    """
    _bring(_connect(endpoint, project), "pull", name, {"name": name}, output)


@help.command(
    app,
    "import",
    """
    turnout image import oci:build:1 team/trainer:1
    turnout image import docker-archive:trainer.tar team/trainer:1
    turnout image import docker-daemon:trainer:1 team/trainer:1
    """,
)
def import_image(
    source: Annotated[str, typer.Argument(metavar="SOURCE")],
    name: Name,
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Bring an image into the cache that is on the service's machine. Needs the root key.

    SOURCE is oci:DIR:TAG, oci-archive:FILE, docker-archive:FILE or docker-daemon:NAME:TAG. Jobs of every project can
    then name NAME. It stays until `turnout image rm NAME`.
    """
    query = {"source": _absolute(source), "name": name}
    _bring(_connect(endpoint, ""), "import", name, query, output)


@help.command(app, "rm", "turnout image rm team/trainer:1")
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME [NAME...]")],
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Remove images from the cache, if no job runs in them. Needs the root key."""
    from turnout.cli import table

    client = _connect(endpoint, "")
    removed = [client.send("DELETE", "images", name, query={}) for name in names]
    if output.is_document:
        return table.show_document(removed, output)
    for one in removed:
        print(f"Removed {_short(one['name'])} ({_size(one['bytes'])}).")
    return None


def _bring(client: Any, call: str, name: str, query: dict[str, str], output: Form) -> None:
    from turnout.cli import table
    from turnout.cli.progress import Progress

    last: dict[str, Any] = {}
    with Progress(not output.is_document) as bar:
        expected = advanced = 0
        for last in client.bring_image(call, query):
            if last["total"] and not expected:
                expected = last["total"]
                bar.expect(expected)
            if expected and last["bytes"] > advanced:
                bar.advance(last["bytes"] - advanced)
                advanced = last["bytes"]
    if output.is_document:
        return table.show_document(last, output)
    if last["message"]:
        print(last["message"])
    print(f"{name} is in the cache: {last['digest']}")
    return None


def _connect(endpoint: str | None, project: str) -> Any:
    from turnout.cli.login import connect

    client = connect(endpoint)
    client.project = project
    return client


def _absolute(source: str) -> str:
    """The service has another working directory."""
    transport, colon, rest = source.partition(":")
    if transport in ("oci", "oci-archive", "docker-archive") and rest and not rest.startswith("/"):
        return f"{transport}{colon}{Path.cwd() / rest}"
    return source


def _short(name: str) -> str:
    for prefix in ("docker.io/library/", "docker.io/"):
        name = name.removeprefix(prefix)
    return name


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1000 and unit < 4:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[unit]}"
