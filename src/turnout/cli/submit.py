"""`turnout submit` and `turnout clone`: a job from a file of any API, or from another job."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import typer

from turnout.cli import job_output
from turnout.cli.client import Client, Document
from turnout.cli.entry import print_error
from turnout.cli.login import connect
from turnout.cli.options import Form
from turnout.cli.turnout_logs import show_log
from turnout.errors import Invalid

STDIN = "-"


class CloneOptions(NamedTuple):
    """How a clone differs from its original."""

    name: str
    api: str
    settings: list[str]


def submit(
    file: str,
    name: str,
    location: str,
    follow: bool,
    project: str,
    endpoint: str | None,
    output: Form,
) -> None:
    document = _document(file)
    client = connect(endpoint, project=project)
    query = {"name": name, "location": location}
    job = client.send("POST", "jobs", query=query, body=json.dumps(document).encode())
    created(client, job, follow, output)


def clone(
    job: str,
    wanted: CloneOptions,
    cluster: str,
    follow: bool,
    project: str,
    endpoint: str | None,
    output: Form,
) -> None:
    client, query = connect(endpoint, project=project), {"cluster": cluster}
    if wanted.api:
        _show_differences(client.get("jobs", job, "documents", cluster=cluster), wanted.api)
    body = {"name": wanted.name, "api": wanted.api, "changes": dict(map(_setting, wanted.settings))}
    made = client.send("POST", "jobs", job, "clone", query=query, body=json.dumps(body).encode())
    created(client, made, follow, output)


def created(client: Client, job: Document, follow: bool, output: Form = Form.TABLE) -> None:
    """Shows the new job. With `follow`, waits for its end: exit code 1 unless it succeeds."""
    for note in job.get("notes", ()):
        print_error("turnout", note)
    while follow and output is not Form.TABLE and job["ended"] is None:
        job = client.wait(job["id"], "ended")
    job_output.show([job], output, "is created")
    if follow and output is Form.TABLE:
        job = _follow(client, job)
    if follow and job["state"] != "succeeded":
        raise typer.Exit(1)


def _follow(client: Client, job: Document) -> Document:
    """Shows the log until the job has ended, and returns it."""
    client.notify = lambda text: print_error("turnout", text)
    try:
        show_log(client, job)
    except KeyboardInterrupt:
        again = f"`turnout logs -f {job['id']}`, `turnout stop {job['id']}`"
        print_error("turnout", f"the job keeps running: {again}")
        raise typer.Exit(130) from None
    ended = client.wait(job["id"], "ended")
    message = f": {ended['message']}" if ended["message"] else ""
    print_error("turnout", f"{ended['name']} {ended['state']}{message}")
    return ended


def _show_differences(found: Document, api: str) -> None:
    for note in found["documents"].get(api, {}).get("notes", ()):
        print_error("turnout", note)


def _setting(text: str) -> tuple[str, Any]:
    """`path=value`; a value that is JSON is taken as such, any other is text."""
    path, equals, value = text.partition("=")
    if not path or not equals:
        raise Invalid(
            f"--set must be path=value, such as jobSpec.workerPoolSpecs.0.replicaCount=2, not {text!r}"
        )
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def _document(file: str) -> Document:
    """JSON or YAML."""
    text = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8", errors="replace")
    try:
        document = json.loads(text)
    except ValueError:
        document = _yaml(text, file)
    if not isinstance(document, dict):
        raise Invalid(f"{file} must have one JSON or YAML object: a job as one of the APIs describes it")
    return document


def _yaml(text: str, file: str) -> Any:
    import yaml

    try:
        document = yaml.safe_load(text)
        json.dumps(document)  # dates and the like have no place in a job
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"{file} is neither JSON nor YAML: {error}") from None
    return document
