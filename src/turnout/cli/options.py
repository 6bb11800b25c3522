"""Options that several commands share."""

from enum import StrEnum
from typing import Annotated

import typer

from turnout.config import SHARED_CLUSTERS

DEFAULT_CLUSTER = SHARED_CLUSTERS[0]


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"


Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="url",
        help="where the service is; else TURNOUT_ENDPOINT, the login's, the default",
    ),
]
Output = Annotated[Form, typer.Option("--output", metavar="table|json", help="json is for scripts")]
Cluster = Annotated[
    str,
    typer.Option(
        "-c",
        "--cluster",
        help=f"name of the cluster; else the login's, else {DEFAULT_CLUSTER}",
        show_default=False,
    ),
]
Region = Annotated[
    str,
    typer.Option("-r", "--region", help="region of the cluster; else the cluster's own", show_default=False),
]
NoHeader = Annotated[bool, typer.Option("--no-header", help="leave out the table's first line")]
NoTruncate = Annotated[
    bool, typer.Option("--no-truncate", help="do not cut the table to the terminal's width")
]
Job = Annotated[str, typer.Argument(metavar="JOB")]
Jobs = Annotated[list[str], typer.Argument(metavar="JOB [JOB...]")]
