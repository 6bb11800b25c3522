"""`turnout stop`, `turnout delete` and `turnout priority`."""

import json

import typer

from turnout.cli import job_output
from turnout.cli.client import Client, Document, Rejected
from turnout.cli.entry import mention_older, print_error
from turnout.cli.login import connect
from turnout.cli.options import Form


def stop(jobs: list[str], cluster: str, project: str, endpoint: str | None, output: Form) -> None:
    _each(jobs, cluster, connect(endpoint, project=project), ("POST", "stop"), "is stopping", output)


def delete(jobs: list[str], cluster: str, project: str, endpoint: str | None, output: Form) -> None:
    _each(jobs, cluster, connect(endpoint, project=project), ("DELETE",), "is deleted", output)


def priority(
    jobs: list[str], to: int, cluster: str, project: str, endpoint: str | None, output: Form
) -> None:
    client, body = connect(endpoint, project=project), json.dumps({"priority": to}).encode()
    _each(jobs, cluster, client, ("POST", "priority"), f"has priority {to}", output, body)


def _each(
    jobs: list[str],
    cluster: str,
    client: Client,
    call: tuple[str, ...],
    done: str,
    output: Form,
    body: bytes | None = None,
) -> None:
    """Continues after a job that the service refuses."""
    changed: list[Document] = []
    for job in jobs:
        try:
            view = _send(client, job, cluster, body, *call)
        except Rejected as error:
            print_error("turnout", error.message if job in error.message else f"{job}: {error.message}")
            continue
        mention_older("turnout", job, view)
        changed.append(view)
        if output is Form.TABLE:
            job_output.show([view], output, done)
    if output is not Form.TABLE:
        job_output.show(changed, output, done)
    if len(changed) < len(jobs):
        raise typer.Exit(1)


def _send(client: Client, job: str, cluster: str, body: bytes | None, method: str, *verb: str) -> Document:
    return client.send(method, "jobs", job, *verb, query={"cluster": cluster}, body=body)
