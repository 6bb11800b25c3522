"""`turnout stop` and `turnout delete`."""

import typer

from turnout.cli.client import Client, Document, Rejected
from turnout.cli.entry import mention_older, print_error
from turnout.cli.login import connect


def stop(jobs: list[str], cluster: str, project: str, endpoint: str | None) -> None:
    _each(jobs, cluster, connect(endpoint, project=project), ("POST", "stop"), "is stopping")


def delete(jobs: list[str], cluster: str, project: str, endpoint: str | None) -> None:
    _each(jobs, cluster, connect(endpoint, project=project), ("DELETE",), "is deleted")


def _each(jobs: list[str], cluster: str, client: Client, call: tuple[str, ...], done: str) -> None:
    """Continues after a job that the service refuses."""
    complete = True
    for job in jobs:
        try:
            view = _send(client, job, cluster, *call)
        except Rejected as error:
            print_error("turnout", error.message if job in error.message else f"{job}: {error.message}")
            complete = False
        else:
            mention_older("turnout", job, view)
            print(f"{view['name']} ({view['id']}) of project {view['project']} {done}.")
    if not complete:
        raise typer.Exit(1)


def _send(client: Client, job: str, cluster: str, method: str, *verb: str) -> Document:
    return client.send(method, "jobs", job, *verb, query={"cluster": cluster})
