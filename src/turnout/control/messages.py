"""The messages that webhooks get when a job changes. They are written in the commit of the change."""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

import msgspec

from turnout.control.transitions import Transition
from turnout.job import Delivery, to_uuid
from turnout.webhooks import Webhook

_SYMBOLS = {"succeeded": ":white_check_mark:", "failed": ":x:", "stopped": ":octagonal_sign:"}


def messages(
    webhooks: Mapping[str, Webhook], transitions: Iterable[Transition], now: int
) -> Iterator[Delivery]:
    for change in transitions:
        for name, hook in webhooks.items():
            if event := _wanted(name, hook, change):
                identity = f"msg_{secrets.token_hex(12)}"
                render = _slack if hook.format == "slack" else _json
                body = msgspec.json.encode(render(change, event, now))
                job = change.job
                yield Delivery(identity, name, job.project, job.id, now, body, next_at=now)


def _wanted(name: str, hook: Webhook, change: Transition) -> str:
    """The event to send to the webhook; empty: none. A job can name a webhook and events itself."""
    if hook.projects and change.job.project not in hook.projects:
        return ""
    notify = change.notify
    if notify and notify.hook == name:
        return _last(change, notify.events)
    if hook.only_named:
        return ""
    return _last(change, hook.events) if hook.events else change.events[0]


def _last(change: Transition, wanted: Iterable[str]) -> str:
    return next((event for event in reversed(change.events) if event in wanted), "")


def _json(change: Transition, event: str, now: int) -> dict[str, object]:
    job = change.job
    return {
        "type": f"job.{event}",
        "timestamp": datetime.fromtimestamp(now / 1e9, UTC).isoformat(),
        "data": {
            "id": str(job.id),
            "uuid": to_uuid(job.id),
            "name": job.name,
            "project": job.project,
            "api": job.dialect,
            "cluster": job.cluster,
            "owner": job.owner,
            "state": str(job.state),
            "was": str(change.was) if change.was else None,
            "attempt": job.attempt,
            "reason": str(job.reason) if job.reason else None,
            "message": "" if change.sealed else job.message,
            "created": job.created,
            "started": job.started,
            "ended": job.ended,
        },
    }


def _slack(change: Transition, event: str, now: int) -> dict[str, object]:
    job = change.job
    why = "" if change.sealed or not job.message or event == "succeeded" else f": {_escaped(job.message)}"
    symbol = _SYMBOLS.get(event, ":information_source:")
    return {"text": f"{symbol} *{_escaped(job.name)}* ({_escaped(job.project)}) {event}{why}"}


def _escaped(text: str) -> str:
    """The text in Slack's format, without links and mentions."""
    return text[:500].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
