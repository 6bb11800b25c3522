"""`tictl logs`: shows the output of a job, all roles interleaved."""

import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated

import typer

from turnout.cli import help, table
from turnout.cli.client import Client, Document
from turnout.cli.entry import print_error
from turnout.cli.jobs import describe_one
from turnout.cli.language import say
from turnout.cli.login import connect, stored
from turnout.cli.options import Cluster, Endpoint, Form, Output, Project, Region, TiaJob
from turnout.errors import Invalid

PAGE = 1000
QUERY_LIMIT = 10_000
"""The most lines that one query of QueryLogs returns."""
CHINA = timezone(timedelta(hours=8))

Start = Annotated[
    str, typer.Option("-s", "--start-time", help="YYYY-mm-dd HH:MM:SS, +08:00 (default: the job's start)")
]
End = Annotated[
    str, typer.Option("-e", "--end-time", help="YYYY-mm-dd HH:MM:SS, +08:00 (default: the job's end)")
]
Limit = Annotated[int, typer.Option("-l", "--limit", help="maximum number of lines, up to 10000", min=1)]
TimePrefix = Annotated[
    bool,
    typer.Option("--time-prefix/--no-time-prefix", help="begin each line with its time and pod (default)"),
]
Follow = Annotated[
    bool, typer.Option("-f", "--follow", help="show all lines, and new ones until the job ends")
]


def add(app: typer.Typer) -> None:
    help.command(
        app,
        "logs",
        """
        tictl logs mnist
        tictl logs mnist --follow
        tictl logs mnist -s "2018-05-03 20:10:00" -e "2018-05-03 20:11:00" -l 50
        """,
    )(logs)


def logs(
    name: TiaJob,
    start_time: Start = "",
    end_time: End = "",
    limit: Limit = 1000,
    time_prefix: TimePrefix = True,
    follow: Follow = False,
    cluster: Cluster = "",
    region: Region = "",
    project: Project = "",
    endpoint: Endpoint = None,
    output: Output = Form.TABLE,
) -> None:
    """Show the log of a job, oldest line first"""
    _check(start_time, end_time, limit, follow)
    login = stored()
    region, cluster = login.region_and_cluster(region, cluster)
    client = connect(endpoint, login, project)
    job = describe_one(client, region, cluster, name)
    if follow:
        client.notify = lambda text: print_error("tictl", text)
        pages = _followed(client, job)
    else:
        _check_range(job, start_time, end_time)
        pages = _queried(client, region, job, start_time or _begin(job), end_time or _end(job), limit)
    silent = True
    for page in pages:
        silent = False
        shown = (
            table.document_line(line, output) if output.is_document else _text(line, time_prefix)
            for line in page
        )
        print("\n".join(shown), flush=True)
    if silent and sys.stdout.isatty():
        text = "{name} printed nothing" if job.get("EndTime") or follow else "{name} printed nothing yet"
        if start_time or end_time:
            text = "{name} printed nothing at that time"
        print_error("tictl", say(text, name=name))


def _check(start: str, end: str, limit: int, follow: bool) -> None:
    if follow and (start or end):
        raise Invalid("--follow shows all lines: omit --start-time and --end-time, or omit --follow")
    if limit > QUERY_LIMIT:
        raise Invalid(f"--limit is at most {QUERY_LIMIT}; `tictl logs --follow` shows all lines of a job")
    for flag, text in (("--start-time", start), ("--end-time", end)):
        if text and not re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", text):
            raise Invalid(f"{flag} must look like 2018-05-03 20:10:00, not {text!r}")


def _check_range(job: Document, start: str, end: str) -> None:
    """Raises Invalid. A time that the user did not give is the job's own."""
    if start and not end and start > _end(job):
        ended = job.get("EndTime")
        fact = f"the job ended before, at {_end(job)} +0800" if ended else "that is in the future"
        raise Invalid(f"there is nothing after --start-time {start}: {fact}")
    if end and not start and end < _begin(job):
        raise Invalid(
            f"there is nothing before --end-time {end}: the job was created later, at {_begin(job)} +0800"
        )
    if start and end and end < start:
        raise Invalid("--end-time must not be before --start-time")


def _queried(
    client: Client, region: str, job: Document, start: str, end: str, limit: int
) -> Iterator[list[Document]]:
    query = {"JobName": job["Name"], "Cluster": job["Cluster"], "StartTime": start, "EndTime": end}
    shown, context = 0, ""
    while shown < limit:
        page = {"Limit": min(PAGE, limit - shown)} | ({"Context": context} if context else {})
        answer = client.call("QueryLogs", query | page, region)
        if answer["Logs"]:
            yield answer["Logs"]
        shown += len(answer["Logs"])
        context = answer["Context"]
        if answer["Listover"]:
            return
    text = "these are the first {shown} lines; --limit shows more, --follow all"
    if limit == QUERY_LIMIT:
        text = "these are the first {shown} lines; --follow shows all"
    print_error("tictl", say(text, shown=shown))


def _followed(client: Client, job: Document) -> Iterator[list[Document]]:
    for lines in client.follow(job["Id"]):
        yield [{"Time": _rfc3339(x["at"]), "PodName": x["pod"], "Log": x["text"]} for x in lines]


def _begin(job: Document) -> str:
    """The times of a job are +08:00 and begin in the format that QueryLogs takes."""
    return job["CreateTime"][:19]


def _end(job: Document) -> str:
    if job.get("EndTime"):
        return job["EndTime"][:19]
    return datetime.fromtimestamp(time.time() + 60, CHINA).strftime("%Y-%m-%d %H:%M:%S")


def _text(line: Document, time_prefix: bool) -> str:
    return f"[{line['Time']:<30}  {line['PodName']}] {line['Log']}" if time_prefix else line["Log"]


def _rfc3339(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:09d}".rstrip("0").rstrip(".") + "Z"
