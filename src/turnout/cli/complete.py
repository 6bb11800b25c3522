"""What a shell offers when Tab is pressed: names of jobs, from the service; states and APIs, from here."""

import re
from typing import Any

import typer

SECONDS = 1.0
"""A service that does not answer within this time has nothing to offer: a shell must not hang."""
MOST = 100

STATES = (
    "queued", "preparing", "running", "stopping", "succeeded", "failed", "stopped", "waiting", "live", "ended",
)  # fmt: skip
APIS = ("tia", "modelarts", "vertex")

_PLAIN = re.compile(r"[\w.@%+=/-]+")
"""Names that a shell takes as one word. The others are offered by their ids."""
_LIVE_ONLY = ("stop", "priority")


def jobs(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Jobs of any API, the newest first, each with a word about it."""
    state = "live" if context.info_name in _LIVE_ONLY else ""
    return _offered(context, incomplete, {"state": state})


def tia_jobs(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    return _offered(context, incomplete, {"api": "tia"})


def states(incomplete: str) -> list[str]:
    return _among(STATES, incomplete)


def apis(incomplete: str) -> list[str]:
    return _among(APIS, incomplete)


def _offered(context: typer.Context, incomplete: str, query: dict[str, str]) -> list[tuple[str, str]]:
    if incomplete and not incomplete.isdecimal():
        query = query | {"name": f"{incomplete}*"}
    from turnout.cli.login import connect  # only here: commands that call no service start faster without it

    options = context.params
    try:
        client = connect(options.get("endpoint"), project=options.get("project") or "")
        found = client.get("jobs", within=SECONDS, limit=str(MOST), **query)["jobs"]
    except Exception:  # noqa: BLE001 - a message would end up in the line that the user types
        return []
    by_id = incomplete.isdecimal()
    offered = {
        job["id"] if by_id else _word(job): f"{job['dialect']}, {job['state']}" for job in reversed(found)
    }
    return [(word, about) for word, about in reversed(offered.items()) if word.startswith(incomplete)]


def _word(job: dict[str, Any]) -> str:
    return job["name"] if _PLAIN.fullmatch(job["name"]) else job["id"]


def _among(words: tuple[str, ...], incomplete: str) -> list[str]:
    """The last of several words that are separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{word}" for word in words if word.startswith(last)]
