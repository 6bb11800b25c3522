"""What this process knows of its gangs on a cluster: their pods as Kubernetes last described them."""

import asyncio
import time
from typing import Any

from turnout.engines.kubernetes.objects import GANG, NAME, PLACED, REFUSED, REPLICA, GangObjects
from turnout.engines.kubernetes.states import PodEvent, PodState, gang_job, gone_state, pod_state
from turnout.engines.remote import ClusterJob, EndKind, Phase
from turnout.job import ReplicaName

Document = dict[str, Any]

_REMEMBERED = 10_000
TURN = "Kubernetes: it waits for its turn: the pods of another job are being placed"


class PlacedGang:
    """A gang that was submitted. Its pods come and go; each time, `changed` is set."""

    def __init__(self, handle: str, name: str) -> None:
        self.handle = handle
        self.name = name
        self.objects: GangObjects | None = None
        """None: it was placed before this process began."""
        self.owner: Document = {}
        """The reference to its ConfigMap."""
        self.placed = False
        self.waiting = ""
        """Why it is not placed."""
        self.refused = ""
        """Why it can never be placed."""
        self.cancelled = False
        self.forgotten = False
        """It has ended and waits to be removed."""
        self.pods: dict[ReplicaName, Document] = {}
        self.gone: dict[ReplicaName, Document | None] = {}
        """Pods that were deleted."""
        self._made: dict[ReplicaName, str] = {}
        """The uids of the pods of the current try to place it."""
        self.events: dict[str, list[PodEvent]] = {}
        """By pod."""
        self.changed = asyncio.Event()

    @property
    def members(self) -> list[ReplicaName]:
        known = {*self.pods, *self.gone}
        if self.objects:
            known |= {one.replica for one in self.objects.all_members()}
        return sorted(known)

    @property
    def is_starting(self) -> bool:
        """Not one that waits for something else than its turn."""
        if self.cancelled or self.refused:
            return False
        if not self.placed:
            return not self.waiting or self.waiting == TURN
        return any(pod["status"].get("phase") == "Pending" for pod in self.pods.values())

    def give_up(self) -> None:
        self.cancelled = True
        self.changed.set()

    def take(self, pod: Document) -> None:
        replica = replica_of(pod)
        self.pods[replica] = trimmed(pod)
        self.gone.pop(replica, None)
        self.changed.set()

    def take_made(self, pod: Document) -> None:
        """Takes a pod from the reply that made it. The watch may be ahead of it, or still describe an earlier pod."""
        replica, uid = replica_of(pod), pod["metadata"]["uid"]
        self._made[replica] = uid
        known = self.pods.get(replica)
        if known is None or known["metadata"]["uid"] != uid:
            self.take(pod)

    def clear(self) -> None:
        """Forgets its pods: they were deleted, and will be made again."""
        self.pods.clear()
        self.gone.clear()
        self._made.clear()

    def made_states(self) -> dict[ReplicaName, PodState]:
        """The states of its pods, without those of earlier tries, which a late watch may still describe."""
        current = {name for name, pod in self.pods.items() if pod["metadata"]["uid"] == self._made.get(name)}
        return {name: state for name, state in self.states().items() if name in current}

    def drop(self, replica: ReplicaName, last: Document | None) -> None:
        self.pods.pop(replica, None)
        self.gone[replica] = last
        self.changed.set()

    def states(self) -> dict[ReplicaName, PodState]:
        now = time.time()
        found: dict[ReplicaName, PodState] = {}
        for name, pod in self.pods.items():
            found[name] = pod_state(pod, self.events.get(pod["metadata"]["name"], ()), now)
        if self.placed:
            for name, last in self.gone.items():
                events = self.events.get(last["metadata"]["name"], ()) if last else ()
                found[name] = gone_state(last, events)
        return found

    def job(self) -> ClusterJob:
        if self.refused:
            return ClusterJob(self.handle, self.name, Phase.ENDED, self.refused, EndKind.FAILED, is_own=True)
        states = self.states()
        if not self.placed:
            # Its pods may be deleted and made again: only what would happen again counts.
            failed = next((state for state in states.values() if state.end is EndKind.FAILED), None)
            if failed is None:
                why = self._why_waiting(states)
                return ClusterJob(self.handle, self.name, Phase.PENDING, why, is_own=True)
            return ClusterJob(self.handle, self.name, Phase.ENDED, failed.why, failed.end, is_own=True)
        if not states:
            why = gone_state(None).why
            return ClusterJob(self.handle, self.name, Phase.ENDED, why, EndKind.CANCELLED, is_own=True)
        return gang_job(self.handle, self.name, states)

    def _why_waiting(self, states: dict[ReplicaName, PodState]) -> str:
        without = [state for state in states.values() if not state.node]
        if not states or self.waiting or not without:
            return self.waiting or "Kubernetes: its pods are being made"
        count = len(self.members)
        have = count - len(without)
        return f"{without[0].why} ({have} of {count} replicas have a node)" if have else without[0].why


class Gangs:
    """All gangs of this service on one cluster, by handle."""

    def __init__(self) -> None:
        self._gangs: dict[str, PlacedGang] = {}
        self._removed: dict[str, None] = {}
        """Handles of gangs that were removed: their pods may be listed for a while."""
        self.changed = asyncio.Event()

    def add(self, handle: str, name: str) -> PlacedGang:
        return self._gangs.setdefault(handle, PlacedGang(handle, name))

    def get(self, handle: str) -> PlacedGang | None:
        return self._gangs.get(handle)

    def remove(self, handle: str) -> None:
        gang = self._gangs.pop(handle, None)
        self._removed[handle] = None
        if len(self._removed) > _REMEMBERED:
            del self._removed[next(iter(self._removed))]
        if gang:
            gang.give_up()

    def all(self) -> list[PlacedGang]:
        return list(self._gangs.values())

    def take_pod(self, pod: Document) -> None:
        handle = pod["metadata"]["labels"][GANG]
        if handle not in self._removed:
            self.add(handle, _annotation(pod, NAME)).take(pod)
            self.changed.set()

    def drop_pod(self, pod: Document) -> None:
        gang, replica = self.get(pod["metadata"]["labels"][GANG]), replica_of(pod)
        known = gang and gang.pods.get(replica)
        # It may have been made again meanwhile, under the same name.
        if gang and (known is None or known["metadata"]["uid"] == pod["metadata"]["uid"]):
            gang.drop(replica, trimmed(pod))
            self.changed.set()

    def are_starting(self) -> bool:
        return any(gang.is_starting for gang in self._gangs.values())

    def take_root(self, root: Document) -> PlacedGang:
        gang = self.add(root["metadata"]["name"], _annotation(root, NAME))
        gang.placed = gang.placed or bool(_annotation(root, PLACED))
        gang.refused = gang.refused or _annotation(root, REFUSED)
        return gang


def replica_of(pod: Document) -> ReplicaName:
    return ReplicaName.parse(pod["metadata"]["labels"][REPLICA])


def trimmed(pod: Document) -> Document:
    """The fields of a pod that are kept. The others are many times larger."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    kept = ("name", "uid", "labels", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
    return {
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"nodeName": spec.get("nodeName") or ""},
        "status": pod.get("status") or {},
    }


def _annotation(item: Document, name: str) -> str:
    return (item["metadata"].get("annotations") or {}).get(name) or ""
