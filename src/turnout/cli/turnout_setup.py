"""`turnout setup`: writes the settings and a systemd unit."""

from typing import Annotated

import typer

from turnout.cli import help


def add(app: typer.Typer) -> None:
    help.command(
        app,
        "setup",
        """
        turnout setup                                # asks four questions
        turnout setup --dry-run
        turnout setup --listen 127.0.0.1:8470 --data /srv/turnout --tls proxy
        turnout setup --listen 0.0.0.0:443 --tls /srv/cert.pem,/srv/key.pem --yes
        """,
    )(setup)


def setup(
    listen: Annotated[
        str, typer.Option("--listen", metavar="address:port", help="where the service listens")
    ] = "",
    data: Annotated[str, typer.Option("--data", metavar="dir", help="data directory")] = "",
    tls: Annotated[
        str,
        typer.Option(
            "--tls",
            metavar="none|proxy|cert,key",
            help="proxy: a reverse proxy on this machine has the certificate; or two PEM files",
        ),
    ] = "",
    frameworks: Annotated[
        str,
        typer.Option(
            "--frameworks",
            metavar="install|none",
            help="install: from PyPI, when a job first asks for the preset image of a cloud",
        ),
    ] = "",
    config: Annotated[
        str, typer.Option("--config", metavar="file", help="settings file to write (default: see above)")
    ] = "",
    unit: Annotated[
        str, typer.Option("--unit", metavar="file", help="systemd unit to write (default: see above)")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show what would be written")] = False,
    yes: Annotated[
        bool, typer.Option("-y", "--yes", help="ask nothing; a file that exists and differs is an error")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace files that exist, without asking")
    ] = False,
) -> None:
    """Write the settings file and a systemd unit, after four questions. An option answers its question.

    As root: /etc/turnout/turnout.toml and /etc/systemd/system/turnout.service. Otherwise:
    ~/.config/turnout/turnout.toml and ~/.config/systemd/user/turnout.service.
    """
    from turnout.cli import setup

    answers = setup.Answers(listen, data, tls, frameworks)
    setup.setup(answers, setup.Files.of(config, unit), dry_run=dry_run, yes=yes, overwrite=overwrite)
