"""What a task printed: its last part, a link to all of it, or lines by their numbers."""

from collections.abc import Mapping
from typing import Literal, NamedTuple
from urllib.parse import quote, urlencode

from turnout.access.links import Link
from turnout.errors import Invalid
from turnout.job import Job, ReplicaName, to_uuid
from turnout.service import JobView, Numbered

NOT_MADE = "ModelArts.2818"
CLEARED = "ModelArts.2819"
BAD_QUERY = "ModelArts.2764"

MOST_PREVIEW = 5 << 20
DEFAULT_LINES, MOST_LINES = 50, 500
LINK_PATH = "/turnout/links/logs"
_DAY = 86_400_000_000_000

Kind = Literal["view", "download"]
_KINDS: dict[str, Kind] = {"text/plain": "view", "application/octet-stream": "download"}
MEDIA_TYPES: dict[Kind, str] = {"view": "text/plain; charset=utf-8", "download": "application/octet-stream"}

Document = dict[str, object]


class LinesWanted(NamedTuple):
    base: int | None
    """The line that those asked for are next to; it is not among them."""
    count: int
    descending: bool


def ready(view: JobView, replica: ReplicaName, now: int, log_days: float) -> bool:
    """Whether there is a log by now. Raises what is true of one that will never be there."""
    job = view.job
    if job.ended is not None and now - job.ended > log_days * _DAY:
        raise Invalid(
            f"The log of {replica} was cleared {log_days:g} days after the job had ended; "
            "set spec.log_export_path to keep logs.",
            field="task_id",
            code=CLEARED,
        )
    begun = job.attempt > 1 or any(one.name == replica and one.started is not None for one in view.replicas)
    if not begun and not job.live:
        raise Invalid(
            f"There is no log of {replica}: the job ended before it started.", field="task_id", code=NOT_MADE
        )
    return begun


def preview(tail: bytes, full_size: int) -> Document:
    return {"content": tail.decode("utf-8", "replace"), "current_size": len(tail), "full_size": full_size}


def kind_of_link(query: Mapping[str, str], headers: Mapping[str, str]) -> Kind:
    """`Content-Type` is a header on the page that describes it, and in the query in its example."""
    asked = query.get("Content-Type", "")
    if asked and _media_type(asked) not in _KINDS:
        raise Invalid(
            f"Content-Type must be {' or '.join(_KINDS)}, not {asked!r}.",
            field="Content-Type",
            code=BAD_QUERY,
        )
    return _KINDS.get(_media_type(asked or headers.get("content-type", "")), "view")


def about(project: str, job_id: str, task_id: str, kind: str) -> tuple[str, ...]:
    """What a link's signature is bound to."""
    return ("log", project, job_id, task_id, kind)


def url(base: str, job: Job, replica: ReplicaName, kind: Kind, link: Link) -> str:
    parts = (job.project, to_uuid(job.id), str(replica))
    path = "/".join(quote(part, safe="") for part in parts)
    query = urlencode({"type": kind, "expires": link.expires, "signature": link.signature})
    return f"{base.rstrip('/')}{LINK_PATH}/{path}?{query}"


def headers(job_id: str, task_id: str, kind: Kind) -> dict[str, str]:
    """A log is somebody's text: no browser may take it for a page."""
    name = quote(f"modelarts-job-{job_id}-{task_id}.log")
    return {
        "Content-Disposition": f'{"attachment" if kind == "download" else "inline"}; filename="{name}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


def lines_wanted(query: Mapping[str, str]) -> LinesWanted:
    order = query.get("order", "").strip().lower() or "desc"
    if order not in ("asc", "desc"):
        raise Invalid(f"order must be asc or desc, not {query['order']!r}.", field="order", code=BAD_QUERY)
    return LinesWanted(
        base=_number(query, "base_line", None, 0, 10**15),
        count=_number(query, "lines", DEFAULT_LINES, 1, MOST_LINES) or DEFAULT_LINES,
        descending=order == "desc",
    )


def first_line(asked: LinesWanted) -> int | None:
    """Where to begin: beside the base."""
    if asked.base is None:
        return None
    return asked.base - 1 if asked.descending else asked.base + 1


def lines(found: Numbered, descending: bool) -> Document:
    """Line numbers are text on the wire. Descending: the newest line first."""
    texts = [line.rstrip(b"\r\n").decode("utf-8", "replace") for line in found.lines]
    return {
        "start_line": str(found.first if texts else 0),
        "end_line": str(found.first + len(texts) - 1 if texts else 0),
        "lines": len(texts),
        "content": "".join(f"{text}\n" for text in (reversed(texts) if descending else texts)),
    }


def _media_type(text: str) -> str:
    return text.partition(";")[0].strip().lower()


def _number(query: Mapping[str, str], name: str, default: int | None, least: int, most: int) -> int | None:
    text = query.get(name, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or not least <= int(text) <= most:
        raise Invalid(
            f"{name} must be a whole number from {least} to {most}, not {text!r}.", field=name, code=BAD_QUERY
        )
    return int(text)
