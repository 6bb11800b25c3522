"""`tictl job`: create, list, describe, delete."""

import re
import shlex
from collections.abc import Callable
from typing import Annotated

import typer

from turnout.cli import help, hints, table, wait
from turnout.cli.client import Client, Document, Rejected
from turnout.cli.entry import mention_older, print_error
from turnout.cli.language import say
from turnout.cli.login import connect, stored
from turnout.cli.options import (
    Cluster,
    Endpoint,
    Form,
    NoHeader,
    NoTruncate,
    Output,
    Project,
    Region,
    TiaJobs,
)
from turnout.errors import Invalid

COLUMNS = {"NAME": "Name", "CREATED": "CreateTime", "END": "EndTime", "STATE": "State", "MESSAGE": "Message"}
PAGE = 100

_TIME = re.compile(r"^(\d{4}-(\d\d-\d\d \d\d:\d\d:\d\d))(?:\.\d+)? \+0800 .*$")
_QUOTED = re.compile(r"""\\.|'[^']*'|["](?:\\.|[^"\\])*["]""", re.DOTALL)
_SHELL = re.compile(r"(?:^|\s)(\|\|?|&&?|\d?>>?(?:&\d)?|<)(?=\s|$)|(;)(?=\s|$)|(\$(?:\w+|\{\w+\}|\())")

app = help.group("Training jobs")

Name = Annotated[str, typer.Argument(metavar="NAME")]
PackageDir = Annotated[
    list[str] | None,
    typer.Option(
        "-p",
        "--packagedir",
        help="a directory to mount: cos://…:/dir, nfs://…:/dir or file:///dir:/dir; repeatable",
    ),
]
Command = Annotated[str, typer.Option("--command", help="command, split into words as in a shell")]
Args = Annotated[str, typer.Option("--args", help="its arguments, split in the same way")]
Runtime = Annotated[str, typer.Option("--runtime", help="runtime environment")]
ScaleTier = Annotated[str, typer.Option("--st", "--scaletier", help="BASIC … LARGE_GPU_DIST, or CUSTOM")]
MasterType = Annotated[
    str, typer.Option("--mt", "--mastertype", help="machine type of the master, such as 2U4G1P")
]
WorkerType = Annotated[str, typer.Option("--wt", "--workertype", help="machine type of each worker")]
PsType = Annotated[str, typer.Option("--pt", "--pstype", help="machine type of each parameter server")]
WorkerCount = Annotated[int | None, typer.Option("-w", "--wcount", help="number of workers")]
PsCount = Annotated[int | None, typer.Option("--ps", "--pscount", help="number of parameter servers")]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="key=value", help="RuntimeConf; repeatable")
]
Debug = Annotated[bool, typer.Option("--debug", help="keep the workspaces after the job has ended")]
Wait = Annotated[
    bool, typer.Option("--wait", help="wait until the job has ended; exit with 0 only if it succeeds")
]


@help.command(
    app,
    "create",
    """
    tictl job create first --command=python --args="-c 'print(6 * 7)'" --wait
    tictl job create mnist -p file:///home/me/mnist:/data --st=BASIC_DIST \\
      --command=python --args=train.py
    tictl job create big --command="python train.py" --mt=2U4G0P \\
      --wt=4U8G1P --wcount=2 --pt=1U2G0P --ps=1
    """,
)
def create(
    name: Name,
    packagedir: PackageDir = None,
    command: Command = "",
    args: Args = "",
    runtime: Runtime = "tia-1.6.0",
    scaletier: ScaleTier = "",
    mastertype: MasterType = "",
    workertype: WorkerType = "",
    pstype: PsType = "",
    wcount: WorkerCount = None,
    pscount: PsCount = None,
    conf: Conf = None,
    debug: Debug = False,
    cluster: Cluster = "",
    region: Region = "",
    wait_for_end: Wait = False,
    no_header: NoHeader = False,
    no_truncate: NoTruncate = False,
    project: Project = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Create a job"""
    login = stored()
    region, cluster = login.region_and_cluster(region, cluster)
    fields = {
        "Name": name,
        "Cluster": cluster,
        "RuntimeVersion": runtime,
        "PackageDir": packagedir,
        "Command": _words("--command", command),
        "Args": _words("--args", args),
        "ScaleTier": scaletier,
        "MasterType": mastertype,
        "WorkerType": workertype,
        "ParameterServerType": pstype,
        "WorkerCount": wcount,
        "ParameterServerCount": pscount,
        "RuntimeConf": conf,
        "Debug": debug or None,
    }
    client = connect(endpoint, login, project)
    given = {field: value for field, value in fields.items() if value not in (None, "", [])}
    try:
        job = client.call("CreateJob", given, region)["Job"]
    except Rejected as error:
        raise hints.about_new_job(error, given) from None
    _warn_about_shell(f"{command} {args}")
    if not output.is_document:
        print(say("create job success."))
        _show([job], no_header, no_truncate)
    if wait_for_end:
        job = _wait_until_ended(client, region, job, quiet=output.is_document)
    if output.is_document:
        table.show_document(job, output)
    if wait_for_end and job["State"] != "Succeeded":
        raise typer.Exit(1)


@help.command(app, "list", "tictl job list -c ap-beijing")
def list_jobs(
    cluster: Cluster = "",
    region: Region = "",
    no_header: NoHeader = False,
    no_truncate: NoTruncate = False,
    project: Project = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """List the jobs of a cluster, by name"""
    login = stored()
    region, cluster = login.region_and_cluster(region, cluster)
    jobs = sorted(_all(connect(endpoint, login, project), region, cluster), key=lambda job: job["Name"])
    _print(jobs, output, no_header, no_truncate)


@help.command(app, "describe", "tictl job describe mnist first --output=json")
def describe(
    names: TiaJobs,
    cluster: Cluster = "",
    region: Region = "",
    no_header: NoHeader = False,
    no_truncate: NoTruncate = False,
    project: Project = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Show jobs, one row each"""
    login = stored()
    region, cluster = login.region_and_cluster(region, cluster)
    client = connect(endpoint, login, project)
    found: list[Document] = []

    def describe_next(name: str) -> None:
        client.project = project
        found.append(describe_one(client, region, cluster, name))

    complete = _each(names, describe_next)
    if found or output.is_document:
        _print(found, output, no_header, no_truncate)
    if not complete:
        raise typer.Exit(1)


@help.command(app, "delete", "tictl job delete first mnist")
def delete(
    names: TiaJobs,
    cluster: Cluster = "",
    region: Region = "",
    project: Project = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
    no_header: NoHeader = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Delete jobs, and stop those that run"""
    login = stored()
    region, cluster = login.region_and_cluster(region, cluster)
    client = connect(endpoint, login, project)
    deleted: list[str] = []

    def delete_one(name: str) -> None:
        client.project = project
        _call(client, "DeleteJob", region, cluster, name)
        deleted.append(name)
        if not output.is_document:
            print(say("The job {name} is deleted successfully.", name=name))

    complete = _each(names, delete_one)
    if output.is_document:
        table.show_document({"deleted": deleted}, output)
    if not complete:
        raise typer.Exit(1)


def describe_one(client: Client, region: str, cluster: str, name: str) -> Document:
    """Returns the job. Afterwards the client acts in the job's project."""
    return _call(client, "DescribeJob", region, cluster, name)["Job"]


def _call(client: Client, action: str, region: str, cluster: str, name: str) -> Document:
    fields = {"Name": name, "Cluster": cluster}
    try:
        return client.call(action, fields, region)
    except Rejected as error:
        if error.code != "ResourceNotFound" or client.project:
            raise hints.about_job(error, name, cluster) from None
        client.project = _project_of(client, cluster, name)
        if not client.project:
            raise hints.about_job(error, name, cluster) from None
    return client.call(action, fields, region)


def _project_of(client: Client, cluster: str, name: str) -> str:
    """For root: the project of a TI-A job that is not in root's own project; empty if there is none."""
    try:
        job = client.get("jobs", name, cluster=cluster)
    except Rejected:
        return ""
    if job["dialect"] != "tia" or job["name"] != name:
        return ""
    mention_older("tictl", name, job)
    return job["project"]


def _words(flag: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise Invalid(f"{flag} cannot be split into words: {error}; quote it as in a shell") from None


def _warn_about_shell(text: str) -> None:
    """Warns if the program gets shell syntax as a plain word, which is rarely intended."""
    found = _SHELL.search(_QUOTED.sub("", text))
    if found:
        word = next(filter(None, found.groups()))
        hint = (
            f"no shell runs this command: the program gets {word} as a plain word; for a shell, use sh -c '…'"
        )
        print_error("tictl", hint)


def _wait_until_ended(client: Client, region: str, job: Document, quiet: bool) -> Document:
    """Waits until the job has ended, and returns it."""
    name, cluster = job["Name"], job["Cluster"]
    wait.until_ended(client, describe_one(client, region, cluster, name), quiet)
    return describe_one(client, region, cluster, name)


def _all(client: Client, region: str, cluster: str) -> list[Document]:
    jobs: list[Document] = []
    while True:
        page = client.call("ListJobs", {"Cluster": cluster, "Limit": PAGE, "Offset": len(jobs)}, region)[
            "Jobs"
        ]
        jobs += page
        if len(page) < PAGE:
            return jobs


def _each(names: list[str], act: Callable[[str], None]) -> bool:
    """Continues after an error. Returns True if there was none."""
    complete = True
    for name in names:
        try:
            act(name)
        except Rejected as error:
            print_error("tictl", error.message)
            complete = False
    return complete


def _print(jobs: list[Document], output: Form, no_header: bool, no_truncate: bool) -> None:
    if output.is_document:
        return table.show_document(jobs, output)
    return _show(jobs, no_header, no_truncate or output is Form.WIDE)


def _show(jobs: list[Document], no_header: bool, no_truncate: bool) -> None:
    header = list(COLUMNS)
    rows = [[str(job.get(field) or "") for field in COLUMNS.values()] for job in jobs]
    width = None if no_truncate else table.room()
    if not table.fits(header, rows, no_header, width):
        header = [f"{title} (+0800)" if title in ("CREATED", "END") else title for title in header]
        full, rows = rows, _with_times(rows, r"\1")
        if not table.fits(header, rows, no_header, width, whole=False):
            rows = _with_times(full, r"\2")
    table.show(header, rows, no_header, no_truncate)


def _with_times(rows: list[list[str]], form: str) -> list[list[str]]:
    return [[_TIME.sub(form, cell) for cell in row] for row in rows]
