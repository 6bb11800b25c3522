"""Requests for a task's log and the answers to them, without any I/O."""

import codecs
from collections.abc import Mapping
from typing import Literal, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from turnout.access.links import SignedLink
from turnout.dialects.modelarts import fields
from turnout.dialects.modelarts.errors import BAD_QUERY, LOG_CLEARED, NO_LOG
from turnout.errors import Invalid
from turnout.job import Job, ReplicaName, to_uuid
from turnout.service import JobView, Numbered

MAX_PREVIEW = 5 << 20
_PREVIEW_CHUNK = 64 << 10
DEFAULT_LINES, MAX_LINES = 50, 500
MAX_LINE_NUMBER = 10**15
LINK_PATH = "/turnout/links/logs"
_DAY = 86_400_000_000_000

Kind = Literal["view", "download"]
_KINDS: dict[str, Kind] = {"text/plain": "view", "application/octet-stream": "download"}
MEDIA_TYPES: dict[Kind, str] = {"view": "text/plain; charset=utf-8", "download": "application/octet-stream"}

Document = dict[str, object]


class LineRange(NamedTuple):
    first: int | None
    """None: the last line if `descending`, else the first."""
    count: int
    descending: bool


def is_ready(view: JobView, replica: ReplicaName, now: int, log_days: float) -> bool:
    """Whether the task has started, so that it has a log. Raises Invalid if the log was deleted or will never exist."""
    job = view.job
    if log_days and job.ended is not None and now - job.ended > log_days * _DAY:
        raise Invalid(
            f"The log of {replica} was deleted {log_days:g} days after the job ended; "
            "set spec.log_export_path to keep logs.",
            field="task_id",
            code=LOG_CLEARED,
        )
    starts = (other.started for other in view.replicas if other.name == replica)
    started = job.attempt > 1 or any(start is not None for start in starts)
    if not started and not job.live:
        raise Invalid(
            f"{replica} has no log: the job ended before {replica} started.", field="task_id", code=NO_LOG
        )
    return started


def preview(tail: bytes, full_size: int) -> bytes:
    """The answer as JSON, encoded in chunks, so that other threads can run in between."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    chunks = (tail[start : start + _PREVIEW_CHUNK] for start in range(0, len(tail), _PREVIEW_CHUNK))
    content = [_json_text(decoder.decode(chunk)) for chunk in chunks]
    content.append(_json_text(decoder.decode(b"", final=True)))
    sizes = f'","current_size":{len(tail)},"full_size":{full_size}}}'
    return b"".join([b'{"content":"', *content, sizes.encode()])


def link_kind(query: Mapping[str, str], headers: Mapping[str, str]) -> Kind:
    """The reference describes `Content-Type` as a header, and its example has it in the query."""
    given = query.get("Content-Type", "")
    if given and _media_type(given) not in _KINDS:
        raise Invalid(
            f"Content-Type must be {' or '.join(_KINDS)}, not {given!r}.",
            field="Content-Type",
            code=BAD_QUERY,
        )
    return _KINDS.get(_media_type(given or headers.get("content-type", "")), "view")


def link_subject(project: str, job_id: str, task_id: str, kind: str, key: str) -> tuple[str, ...]:
    """The values that the signature of a link covers. `key`: the id of the key that requested the link."""
    return ("log", project, job_id, task_id, kind, key)


def url(base: str, job: Job, replica: ReplicaName, kind: Kind, key: str, link: SignedLink) -> str:
    parts = (job.project, to_uuid(job.id), str(replica))
    path = "/".join(quote(part, safe="") for part in parts)
    query = urlencode({"type": kind, "key": key, "expires": link.expires, "signature": link.signature})
    return f"{base.rstrip('/')}{LINK_PATH}/{path}?{query}"


def headers(job_id: str, task_id: str, kind: Kind) -> dict[str, str]:
    """A log may contain HTML: the headers keep browsers from running it as a page."""
    name = quote(f"modelarts-job-{job_id}-{task_id}.log")
    return {
        "Content-Disposition": f'{"attachment" if kind == "download" else "inline"}; filename="{name}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


def parse_line_range(query: Mapping[str, str]) -> LineRange:
    """The answer begins next to `base_line` and does not include it."""
    order = query.get("order", "").strip().lower() or "desc"
    if order not in ("asc", "desc"):
        raise Invalid(f"order must be asc or desc, not {query['order']!r}.", field="order", code=BAD_QUERY)
    descending = order == "desc"
    base = fields.number(query, "base_line", -1, 0, MAX_LINE_NUMBER)
    return LineRange(
        first=None if base < 0 else base - 1 if descending else base + 1,
        count=fields.number(query, "lines", DEFAULT_LINES, 1, MAX_LINES),
        descending=descending,
    )


def render_lines(found: Numbered, descending: bool) -> Document:
    """Line numbers are text in the answer. Descending: the newest line is the first."""
    texts = [line.rstrip(b"\r\n").decode("utf-8", "replace") for line in found.lines]
    return {
        "start_line": str(found.first if texts else 0),
        "end_line": str(found.first + len(texts) - 1 if texts else 0),
        "lines": len(texts),
        "content": "".join(f"{text}\n" for text in (reversed(texts) if descending else texts)),
    }


def _media_type(text: str) -> str:
    return text.partition(";")[0].strip().lower()


def _json_text(text: str) -> bytes:
    """The text as a JSON string, without the quotes."""
    return msgspec.json.encode(text)[1:-1]
