"""How a job ended and what it ran in, in sentences for `explain`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from turnout.job import Event, EventKind, State

if TYPE_CHECKING:
    from turnout.service.jobs import JobView


def image_of(events: Iterable[Event]) -> list[str]:
    """The image that the job got, and how to change it; nothing if it ran in none."""
    found = [event.message for event in events if event.kind is EventKind.IMAGE]
    if not found:
        return []
    return [f"It ran in {one_line(found[-1])}; [images] in the settings can name another, or a runtime."]


def why_ended(view: JobView) -> list[str]:
    job = view.job
    if job.state is State.SUCCEEDED:
        return [
            f"It succeeded: {one_line(job.message)}."
            if job.message
            else "It succeeded: its program exited with code 0."
        ]
    verb = "was stopped" if job.state is State.STOPPED else f"{job.state}"
    message = one_line(job.message)
    if message and (job.reason is None or job.reason in message):
        said = message.startswith("stopped ") and job.state is State.STOPPED
        why = [f"It was {message}." if said else f"It {verb}: {message}."]
    else:
        why = [
            f"It {verb}: {job.reason}." if job.reason else f"It {verb}.",
            *([f"{message}."] if message else []),
        ]
    if job.started is None:
        why.append("It never ran.")
    ends = [f"{replica.name} {one_line(replica.message)}" for replica in view.replicas if replica.message]
    return why + [f"{end}." for end in ends if end not in message]


def one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
