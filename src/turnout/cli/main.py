"""`turnout`: runs the service, copies data, explains jobs, checks the machine."""

from typing import Annotated, NoReturn

import typer

from turnout import __version__
from turnout.cli import entry, help, keys, turnout_clusters
from turnout.cli.options import Endpoint, Form, Jobs, Output, Project

VERSION = f"turnout {__version__}"
DATA = "/var/lib/turnout as root, else ~/.local/share/turnout"

JobCluster = Annotated[
    str,
    typer.Option("-c", "--cluster", help="cluster of the job, if JOB is a name that several clusters have"),
]

app = help.group("A training-job service that you run yourself.", VERSION)


app.add_typer(keys.app, name="keys")
app.add_typer(turnout_clusters.app, name="cluster")


def main() -> NoReturn:
    entry.run(app, "turnout")


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

    serve.serve(host, port, data, config, no_auth)


@help.command(
    app,
    "explain",
    """
    turnout explain test-job
    turnout explain 1846031847234928640 --output json
    """,
)
def explain(
    job: Annotated[str, typer.Argument(metavar="JOB")],
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
    job: Annotated[str, typer.Argument(metavar="JOB")],
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


@help.command(app, "stop", "turnout stop test-job --project vision")
def stop(jobs: Jobs, cluster: JobCluster = "", project: Project = "", endpoint: Endpoint = None) -> None:
    """Stop jobs of any API. JOB is a name, a number or a UUID."""
    from turnout.cli import changes

    changes.stop(jobs, cluster, project, endpoint)


@help.command(app, "delete", "turnout delete 1846031847234928640")
def delete(jobs: Jobs, cluster: JobCluster = "", project: Project = "", endpoint: Endpoint = None) -> None:
    """Delete jobs of any API; running ones are stopped first. JOB is a name, a number or a UUID."""
    from turnout.cli import changes

    changes.delete(jobs, cluster, project, endpoint)


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
    if output == Form.TABLE:
        print(VERSION)
        return
    from turnout.cli import table

    table.show_json({"turnout": __version__})


if __name__ == "__main__":
    main()
