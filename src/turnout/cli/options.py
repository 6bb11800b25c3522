"""Options that several commands share."""

from enum import StrEnum
from typing import Annotated

import typer

from turnout.cli import complete
from turnout.config import SHARED_CLUSTERS

DEFAULT_CLUSTER = SHARED_CLUSTERS[0]


class Form(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_document(self) -> bool:
        """For programs, which get one document and nothing else."""
        return self in (Form.JSON, Form.YAML)


Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="url",
        help="URL of the service (default: TURNOUT_ENDPOINT, the login's, or http://127.0.0.1:8470)",
    ),
]
Project = Annotated[
    str, typer.Option("--project", metavar="name", help="for the root key: the project to act in")
]
Output = Annotated[
    Form,
    typer.Option(
        "--output",
        metavar="table|wide|json|yaml",
        help="output format; wide cuts nothing, json and yaml are for scripts",
    ),
]
JobCluster = Annotated[
    str,
    typer.Option("-c", "--cluster", help="cluster of the job, if JOB is a name that several clusters have"),
]
Cluster = Annotated[
    str,
    typer.Option(
        "-c",
        "--cluster",
        help=f"cluster (default: the login's, or {DEFAULT_CLUSTER})",
        show_default=False,
    ),
]
Region = Annotated[
    str,
    typer.Option("-r", "--region", help="region (default: that of the cluster)", show_default=False),
]
NoHeader = Annotated[bool, typer.Option("--no-header", help="print no header line")]
NoTruncate = Annotated[
    bool, typer.Option("--no-truncate", help="do not cut the table to the terminal's width")
]
Job = Annotated[str, typer.Argument(metavar="JOB", autocompletion=complete.jobs)]
Jobs = Annotated[list[str], typer.Argument(metavar="JOB [JOB...]", autocompletion=complete.jobs)]
TiaJob = Annotated[str, typer.Argument(metavar="JOB", autocompletion=complete.tia_jobs)]
TiaJobs = Annotated[list[str], typer.Argument(metavar="JOB [JOB...]", autocompletion=complete.tia_jobs)]
