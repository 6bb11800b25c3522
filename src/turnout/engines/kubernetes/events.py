"""Events of pods that wait or end for a reason that the pod's own status does not contain."""

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from turnout.engines.kubernetes.api import Api, ApiError
from turnout.engines.kubernetes.gangs import PlacedGang
from turnout.engines.kubernetes.states import PodEvent

Document = dict[str, Any]

_PATIENCE = 15.0
"""Seconds after which a container that is still being made is worth a question, and until the next. The API server
reads all events of the namespace for each."""


class PodEvents:
    def __init__(self, api: Api) -> None:
        self._api = api
        self.path = ""
        """Of the namespace."""
        self._asked: dict[str, tuple[str, float]] = {}
        """By pod: what it was like, and when, by the monotonic clock."""

    async def load(self, gangs: Iterable[PlacedGang]) -> None:
        """Raises Unreachable."""
        for gang in gangs:
            there = [(pod, _question(pod, there=True)) for pod in gang.pods.values()]
            gone = [(pod, _question(pod, there=False)) for pod in gang.gone.values() if pod]
            for pod, key in (*there, *gone):
                if key and self._is_new(pod, key):
                    name = pod["metadata"]["name"]
                    self._asked[name] = key, time.monotonic()
                    gang.events[name] = await self._of(pod)
        if len(self._asked) > 10_000:
            self._asked.clear()

    def _is_new(self, pod: Document, key: str) -> bool:
        before, at = self._asked.get(pod["metadata"]["name"], ("", 0.0))
        return before != key or (key == "waits" and time.monotonic() - at > _PATIENCE)

    async def _of(self, pod: Document) -> list[PodEvent]:
        metadata = pod["metadata"]
        selector = f"involvedObject.kind=Pod,involvedObject.name={metadata['name']}"
        try:
            found = await self._api.get(f"{self.path}/events", fieldSelector=selector)
        except ApiError:
            return []  # the right may be missing; the pod itself says the most
        events = [
            PodEvent(one.get("reason") or "", one.get("message") or "", one.get("lastTimestamp") or "")
            for one in found.get("items") or ()
            # Those of an eviction for a taint say no uid.
            if one["involvedObject"].get("uid") in (None, "", metadata["uid"])
        ]
        return sorted(events, key=lambda one: one.at)


def _question(pod: Document, there: bool) -> str:
    """What its events may answer; empty: nothing."""
    status, metadata = pod["status"], pod["metadata"]
    if metadata.get("deletionTimestamp") or not there:
        return "deleted" if there else "gone"
    if status.get("phase") == "Failed":
        return "failed"
    made = metadata.get("creationTimestamp")
    late = made and time.time() - datetime.fromisoformat(made).timestamp() > _PATIENCE
    return "waits" if late and status.get("phase") == "Pending" and pod["spec"]["nodeName"] else ""
