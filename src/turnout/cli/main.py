"""`turnout`: run the service, move data, ask why a job waits or ended, see what this machine can do."""

from typing import Annotated, NoReturn

import typer

from turnout import __version__
from turnout.cli import entry, help, keys
from turnout.cli.options import Endpoint, Form, Output

VERSION = f"turnout {__version__}"
DATA = "/var/lib/turnout as root, ~/.local/share/turnout as anybody else"

app = help.group("A training-job service that you run yourself.", VERSION)


app.add_typer(keys.app, name="keys")


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
    host: Annotated[str | None, typer.Option("--host", help="address to listen on; else 127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="port to listen on; else 8470", min=0, max=65535)
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="dir", help="where everything is kept; else " + DATA)
    ] = None,
    config: Annotated[str | None, typer.Option("--config", metavar="file", help="settings (TOML)")] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="ask nobody for a key; on loopback only")
    ] = False,
) -> None:
    """Run the service until it gets SIGTERM or Ctrl-C. Jobs go on running without it.

    Settings come from the file, then from TURNOUT_* variables, then from these options; the later wins.
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
    cluster: Annotated[str, typer.Option("-c", "--cluster", help="where to look for a name")] = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Why a job waits, what it does, or why it ended. JOB is a name, a number or a UUID."""
    from turnout.cli import explain

    explain.explain(job, cluster, endpoint, output)


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
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="go on with new lines until the job ends")
    ] = False,
    trial: Annotated[
        str, typer.Option("--trial", metavar="number|id", help="of a search: which of its trials")
    ] = "",
    cluster: Annotated[str, typer.Option("-c", "--cluster", help="where to look for a name")] = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """What a job printed, whichever API it came through. JOB is a name, a number or a UUID.

    Where there are several replicas each line begins with the name of its own.
    """
    from turnout.cli import lines

    lines.logs(job, trial, follow, cluster, endpoint, output)


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
        bool, typer.Option("-r", "--recursive", help="directories, with all in them")
    ] = False,
    endpoint: Endpoint = None,
) -> None:
    """Copy files into buckets, out of them, or between them. `-` is standard input or output.

    A TARGET that ends with a slash or is there already as a directory is copied into. Links are not followed.
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
    long: Annotated[bool, typer.Option("-l", "--long", help="sizes and times too")] = False,
    recursive: Annotated[bool, typer.Option("-r", "--recursive", help="what is in directories too")] = False,
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """List what is in a bucket or a directory of one; without URL the buckets."""
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
        bool, typer.Option("-r", "--recursive", help="directories, with all in them")
    ] = False,
    endpoint: Endpoint = None,
) -> None:
    """Remove objects from buckets."""
    from turnout.cli import storage

    storage.rm(urls, recursive, endpoint)


@help.command(
    app,
    "login",
    """
    turnout login --endpoint http://gpu-box:8470      asks for the key
    turnout login --si <id> --sk <secret>
    turnout login --info
    """,
)
def login(
    si: Annotated[str, typer.Option("--si", help="secret id; else from TURNOUT_KEY, else asked for")] = "",
    sk: Annotated[str, typer.Option("--sk", help="secret key")] = "",
    info: Annotated[bool, typer.Option("--info", help="show who is logged in")] = False,
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Keep key and endpoint for the other commands, and for tictl."""
    from turnout.cli import tictl

    if info:
        return tictl.show_login("turnout", endpoint, output)
    return tictl.login(si, sk, "", "", False, endpoint, output)


@help.command(app, "logout")
def logout() -> None:
    """Forget key and endpoint."""
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
    seconds: Annotated[
        int, typer.Option("--seconds", help="how long it is good for", min=1, max=3600)
    ] = 3600,
    endpoint: Endpoint = None,
) -> None:
    """Print a bearer token, made from the key of TURNOUT_KEY or of the login. Nobody is asked for it."""
    from turnout.cli import token

    token.show(seconds, endpoint)


@help.command(app, "doctor", "turnout doctor --data ~/jobs")
def doctor(
    data: Annotated[str | None, typer.Option("--data", metavar="dir", help="as for serve")] = None,
    config: Annotated[str | None, typer.Option("--config", metavar="file", help="as for serve")] = None,
    output: Output = Form.TABLE,
) -> None:
    """What this machine can do, and what would make it do more. Exit code 1 if jobs cannot run here."""
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
