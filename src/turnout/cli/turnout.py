"""The commands of `turnout`."""

from typing import Annotated

import typer

from turnout import __version__
from turnout.cli import (
    complete,
    help,
    keys,
    turnout_changes,
    turnout_clusters,
    turnout_images,
    turnout_runtimes,
    turnout_setup,
    turnout_top,
)
from turnout.cli.options import Endpoint, Form, Job, JobCluster, Output, Project

VERSION = f"turnout {__version__}"
DATA = "/var/lib/turnout as root, else ~/.local/share/turnout"

app = help.group("A training-job service that you run yourself.", VERSION)


app.add_typer(keys.app, name="keys")
app.add_typer(turnout_clusters.app, name="cluster")
app.add_typer(turnout_runtimes.app, name="runtime")
app.add_typer(turnout_images.app, name="image")


@help.command(
    app,
    "serve",
    """
    turnout serve
    turnout serve --data ~/jobs --port 9000
    turnout serve --host 0.0.0.0 --config /etc/turnout.toml
    """,
)
def serve(
    host: Annotated[
        str | None, typer.Option("--host", help="address to listen on (default: 127.0.0.1)")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="port to listen on (default: 8470)", min=0, max=65535)
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="dir", help=f"data directory (default: {DATA})")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="file", help="settings file (TOML)")
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="accept your requests without a key; on loopback only")
    ] = False,
) -> None:
    """Run the service until SIGTERM or Ctrl-C. Running jobs continue without it.

    TURNOUT_* variables override the settings file, and these options override both.
    """
    from turnout.cli import serve

    serve.serve(serve.Options(host, port, data, config, no_auth))


@help.command(
    app,
    "explain",
    """
    turnout explain test-job
    turnout explain 1846031847234928640 --output json
    """,
)
def explain(
    job: Job,
    cluster: JobCluster = "",
    project: Project = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Show why a job waits, what it does, or why it ended. JOB is a name, a number or a UUID."""
    from turnout.cli import explain

    explain.explain(job, cluster, project, endpoint, output)


@help.command(
    app,
    "logs",
    """
    turnout logs test-job
    turnout logs 1846031847234928640 --follow
    turnout logs my-search --trial 3
    """,
)
def logs(
    job: Job,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="show new lines until the job ends")] = False,
    trial: Annotated[
        str, typer.Option("--trial", metavar="number|id", help="show this trial of a search")
    ] = "",
    cluster: JobCluster = "",
    project: Project = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Show the output of a job of any API. JOB is a name, a number or a UUID.

    If the job has several replicas, each line begins with the name of its replica.
    """
    from turnout.cli import turnout_logs

    turnout_logs.logs(job, trial, follow, cluster, project, endpoint, output)


@help.command(
    app,
    "jobs",
    """
    turnout jobs
    turnout jobs --state live --watch
    turnout jobs --api vertex --since 2h --output wide
    turnout jobs --label team=vision --state failed --output json
    """,
)
def jobs(
    state: Annotated[
        str,
        typer.Option(
            "--state",
            help="running, failed, …, waiting, live or ended; separate several by commas",
            autocompletion=complete.states,
        ),
    ] = "",
    api: Annotated[
        str,
        typer.Option(
            "--api", help="tia, modelarts, vertex; separate several by commas", autocompletion=complete.apis
        ),
    ] = "",
    name: Annotated[str, typer.Option("--name", help="a part of the name, or a pattern with *")] = "",
    label: Annotated[str, typer.Option("--label", metavar="key[=value]", help="a label or tag")] = "",
    since: Annotated[str, typer.Option("--since", help="created since: 30m, 2h, 7d, or a time")] = "",
    order: Annotated[
        str, typer.Option("--order", help="created, started, ended, name, priority; - reverses it")
    ] = "-created",
    limit: Annotated[int, typer.Option("-n", "--limit", help="how many; 0: all", min=0)] = 50,
    mine: Annotated[bool, typer.Option("--mine", help="only jobs that your key created")] = False,
    owner: Annotated[str, typer.Option("--owner", metavar="key", help="only jobs of this key, or root")] = "",
    watch: Annotated[bool, typer.Option("-w", "--watch", help="show changes until Ctrl-C")] = False,
    cluster: Annotated[str, typer.Option("-c", "--cluster", help="only jobs of this cluster")] = "",
    project: Project = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """List the jobs of all APIs, the newest first. The root key sees all projects."""
    from turnout.cli import job_list

    query = {"state": state, "api": api, "name": name, "label": label, "since": since}
    query |= {"order": order, "cluster": cluster, "owner": "me" if mine else owner}
    job_list.jobs(query, limit, watch, project, endpoint, output)


turnout_top.add(app)


@help.command(
    app,
    "audit",
    """
    turnout audit --since 1d
    turnout audit --job test-job --output json
    """,
)
def audit(
    job: Annotated[
        str, typer.Option("--job", help="only changes of this job: a name, a number or a UUID")
    ] = "",
    key: Annotated[str, typer.Option("--key", help="only changes by this key, `root`, or `me`")] = "",
    since: Annotated[str, typer.Option("--since", help="since: 30m, 2h, 7d, or a time")] = "",
    limit: Annotated[int, typer.Option("-n", "--limit", help="how many; 0: all", min=0)] = 50,
    project: Project = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Show who changed what, the newest first. The root key sees all projects, another key those of its project."""
    from turnout.cli import audit

    audit.audit({"job": job, "key": key, "since": since}, limit, project, endpoint, output)


@help.command(app, "webhooks", "turnout webhooks")
def webhooks(endpoint: Endpoint = None, output: Output = Form.TABLE) -> None:
    """Show which messages wait for each webhook, and which it did not accept. Needs the root key."""
    from turnout.cli import webhooks

    webhooks.webhooks(endpoint, output)


@help.command(
    app,
    "run",
    """
    turnout run -- python train.py --epochs 3
    turnout run --gpus 2 --replicas 4 --name big -- torchrun train.py
    """,
)
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARGUMENT...]")],
    gpus: Annotated[int, typer.Option("--gpus", help="GPUs of each replica", min=0)] = 0,
    replicas: Annotated[int, typer.Option("--replicas", help="number of replicas", min=1)] = 1,
    name: Annotated[str, typer.Option("--name", help="name (default: the name of this directory)")] = "",
    machine: Annotated[str, typer.Option("--machine", help="machine type of Vertex")] = "n1-standard-4",
    image: Annotated[str, typer.Option("--image", help="container image")] = "python:3",
    detach: Annotated[bool, typer.Option("-d", "--detach", help="do not wait for it")] = False,
    endpoint: Endpoint = None,
) -> None:
    """Run a command as a job with this directory as its code, and show its log. Exit code 1 unless it succeeds.

    The directory is copied to a bucket first, without hidden files, __pycache__, venv and node_modules.
    """
    from turnout.cli import run

    run.run(command, run.Machines(gpus, replicas, machine, image), name, detach, endpoint)


turnout_changes.add(app)


@help.command(
    app,
    "cp",
    """
    turnout cp train.csv cos://data/train.csv
    turnout cp obs://results/model.bin .
    turnout cp -r dataset gs://data/dataset
    tar c code | turnout cp - s3://jobs/code.tar
    """,
)
def cp(
    paths: Annotated[list[str], typer.Argument(metavar="SOURCE [SOURCE...] TARGET")],
    recursive: Annotated[
        bool, typer.Option("-r", "--recursive", help="include directories and their content")
    ] = False,
    endpoint: Endpoint = None,
) -> None:
    """Copy files into buckets, out of them, or between them. `-` is standard input or output.

    If TARGET is a directory or ends with a slash, files are copied into it. Links are not followed.
    """
    from turnout.cli import cp

    cp.cp(paths, recursive, endpoint)


@help.command(
    app,
    "ls",
    """
    turnout ls
    turnout ls -l gs://data/dataset
    turnout ls -r obs://results --output json
    """,
)
def ls(
    url: Annotated[str, typer.Argument(metavar="[URL]")] = "",
    long: Annotated[bool, typer.Option("-l", "--long", help="show sizes and times")] = False,
    recursive: Annotated[
        bool, typer.Option("-r", "--recursive", help="include the content of directories")
    ] = False,
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """List the objects in a bucket or a directory of it; without URL, list the buckets."""
    from turnout.cli import storage

    storage.ls(url, long, recursive, endpoint, output)


@help.command(
    app,
    "rm",
    """
    turnout rm cos://data/train.csv
    turnout rm -r gs://data/dataset
    """,
)
def rm(
    urls: Annotated[list[str], typer.Argument(metavar="URL [URL...]")],
    recursive: Annotated[
        bool, typer.Option("-r", "--recursive", help="include directories and their content")
    ] = False,
    endpoint: Endpoint = None,
) -> None:
    """Delete objects from buckets."""
    from turnout.cli import storage

    storage.rm(urls, recursive, endpoint)


@help.command(
    app,
    "login",
    """
    turnout login --endpoint http://gpu-box:8470      # asks for the key
    turnout login --si <id> --sk <secret>
    turnout login --info
    """,
)
def login(
    si: Annotated[str, typer.Option("--si", help="secret id (default: from TURNOUT_KEY, or asks)")] = "",
    sk: Annotated[str, typer.Option("--sk", help="secret key")] = "",
    info: Annotated[bool, typer.Option("--info", help="show the current login")] = False,
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Store key and endpoint for the other commands and for tictl."""
    from turnout.cli import tictl

    if info:
        return tictl.show_login("turnout", endpoint, output)
    return tictl.login(si, sk, "", "", False, endpoint, output)


@help.command(app, "logout")
def logout() -> None:
    """Remove the stored key and endpoint."""
    from turnout.cli import tictl

    tictl.logout()


@help.command(
    app,
    "token",
    """
    turnout token
    curl -H "Authorization: Bearer $(turnout token)" \\
      $TURNOUT_ENDPOINT/v1/projects/default/locations/us-central1/customJobs
    """,
)
def token(
    seconds: Annotated[int, typer.Option("--seconds", help="lifetime", min=1, max=3600)] = 3600,
    endpoint: Endpoint = None,
) -> None:
    """Print a bearer token, made from the key in TURNOUT_KEY or of the login, without calling the service."""
    from turnout.cli import token

    token.show(seconds, endpoint)


@help.command(
    app,
    "sweep",
    """
    turnout sweep --dry-run
    turnout sweep
    """,
)
def sweep(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show what would be deleted")] = False,
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Delete now what is older than [limits] allows; the service does this once a day. Needs the root key.

    It runs in small steps that do not delay other requests. Ctrl-C stops it after the current step.
    """
    from turnout.cli import sweep

    sweep.sweep(dry_run, endpoint, output)


turnout_setup.add(app)


@help.command(app, "doctor", "turnout doctor --data ~/jobs")
def doctor(
    data: Annotated[str | None, typer.Option("--data", metavar="dir", help="as for serve")] = None,
    config: Annotated[str | None, typer.Option("--config", metavar="file", help="as for serve")] = None,
    output: Output = Form.TABLE,
) -> None:
    """Show what this machine can do and what is missing. Exit code 1 if jobs cannot run here."""
    from turnout.cli import doctor

    doctor.doctor(data, config, output)


@help.command(app, "version")
def version(output: Output = Form.TABLE) -> None:
    """Show the version."""
    if not output.is_document:
        print(VERSION)
        return
    from turnout.cli import table

    table.show_document({"turnout": __version__}, output)
