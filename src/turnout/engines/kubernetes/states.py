"""What Kubernetes says of pods, in words: literal tables of its reasons."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from turnout.engines.kubernetes.objects import CONTAINER
from turnout.engines.remote import ClusterJob, EndKind, Gone, Phase
from turnout.job import ReplicaName

Document = dict[str, Any]

IMAGE_SECONDS = 60.0
"""For so long, an image that cannot be pulled may still come: registries fail for a moment."""
_LOST_SECONDS = 30.0
"""A pod that is still there so long after the end of its grace time is on a node that does not answer."""
_LONGEST = 600


class PodState(NamedTuple):
    phase: Phase
    why: str = ""
    end: EndKind | None = None
    node: str = ""

    @property
    def gone(self) -> Gone | None:
        """None: its runner may be alive, even if the pod is being deleted."""
        return Gone(self.end, self.why) if self.end and self.phase is Phase.ENDED else None


class PodEvent(NamedTuple):
    reason: str
    message: str
    at: str = ""


def pod_state(pod: Document, events: Iterable[PodEvent] = (), now: float = 0.0) -> PodState:
    """`events`: what Kubernetes says besides, oldest first. `now`: seconds since 1970; 0: no time passes."""
    status = pod.get("status") or {}
    node = (pod.get("spec") or {}).get("nodeName") or ""
    found = _ended(pod, status, list(events)) or _lost(pod, status, list(events), now)
    if found:
        return PodState(Phase.ENDED, found[1], found[0], node)
    if pod["metadata"].get("deletionTimestamp"):
        end, why = _deleted(status, list(events))
        return PodState(Phase.RUNNING, why, end, node)
    if status.get("phase") == "Running":
        return PodState(Phase.RUNNING, node=node)
    return _pending(pod, status, list(events), now, node)


def gone_state(last: Document | None, events: Iterable[PodEvent] = ()) -> PodState:
    """The state of a pod that was deleted. `last`: the pod as Kubernetes last described it."""
    if last is None:
        return PodState(Phase.ENDED, DELETED, EndKind.CANCELLED)
    status = last.get("status") or {}
    node = (last.get("spec") or {}).get("nodeName") or ""
    found = _ended(last, status, list(events)) or _removed(last, status, list(events))
    return PodState(Phase.ENDED, found[1], found[0], node)


def gang_job(handle: str, name: str, states: Mapping[ReplicaName, PodState]) -> ClusterJob:
    """The state of a gang whose pods were all made."""
    nodes = ", ".join(sorted({state.node for state in states.values() if state.node}))
    gone = {str(one): end for one, state in states.items() if (end := state.gone)}
    if all(state.phase is Phase.ENDED for state in states.values()):
        worst = min(gone.values(), key=lambda one: WORST.index(one.end))
        return ClusterJob(handle, name, Phase.ENDED, worst.why, worst.end, nodes, gone=gone, is_own=True)
    pending = {one: state for one, state in states.items() if state.phase is Phase.PENDING}
    if pending and not gone:
        why = _for_all(pending, len(states))
        return ClusterJob(handle, name, Phase.PENDING, why, None, nodes, gone=gone, is_own=True)
    # A pod that is being deleted says why, before its runner has ended.
    going = next((state for state in states.values() if state.end and state.phase is Phase.RUNNING), None)
    end, why = (going.end, going.why) if going else (None, "")
    return ClusterJob(handle, name, Phase.RUNNING, why, end, nodes, gone=gone, is_own=True)


WORST = (
    EndKind.FAILED,
    EndKind.OUT_OF_MEMORY,
    EndKind.NODE_LOST,
    EndKind.PREEMPTED,
    EndKind.TIME_LIMIT,
    EndKind.CANCELLED,
    EndKind.EXITED,
)
"""Which end of a member explains that of the gang."""

DELETED = "Kubernetes: somebody deleted its pod"

# Why a pod ended: `status.reason`, or the reason of the condition DisruptionTarget, or that of an event.
ENDS: dict[str, tuple[EndKind, str]] = {
    "Evicted": (EndKind.NODE_LOST, "its node evicted it"),
    "NodeLost": (EndKind.NODE_LOST, "its node does not answer"),
    "NodeShutdown": (EndKind.NODE_LOST, "its node was shut down"),
    "Shutdown": (EndKind.NODE_LOST, "its node was shut down"),
    "Terminated": (EndKind.NODE_LOST, "its node was shut down"),
    "NodeAffinity": (EndKind.NODE_LOST, "its node does not match any more"),
    "UnexpectedAdmissionError": (EndKind.NODE_LOST, "its node did not take it"),
    "DeadlineExceeded": (EndKind.TIME_LIMIT, "its deadline was reached"),
    "Preempting": (EndKind.PREEMPTED, "a pod of higher priority took its place"),
    "Preempted": (EndKind.PREEMPTED, "a pod of higher priority took its place"),
    "PreemptionByScheduler": (EndKind.PREEMPTED, "a pod of higher priority took its place"),
    "PreemptionByKubeScheduler": (EndKind.PREEMPTED, "a pod of higher priority took its place"),
    "EvictionByEvictionAPI": (EndKind.PREEMPTED, "it was evicted, as for maintenance of its node"),
    "DeletionByTaintManager": (EndKind.NODE_LOST, "its node does not answer, or must not be used any more"),
    "TaintManagerEviction": (EndKind.NODE_LOST, "its node does not answer, or must not be used any more"),
    "DeletionByPodGC": (EndKind.NODE_LOST, "its node is gone"),
    "TerminationByKubelet": (EndKind.NODE_LOST, "its node ended it"),
}
_OUT_OF = re.compile(r"OutOf(\w+)")
_EVENTS = ("Preempted", "TaintManagerEviction", "Evicted")

# Why a container waits: how it ends, if nothing better comes, and in words.
WAITS: dict[str, tuple[bool, str]] = {
    "ErrImagePull": (True, "its image cannot be pulled"),
    "ImagePullBackOff": (True, "its image cannot be pulled"),
    "RegistryUnavailable": (True, "its image cannot be pulled"),
    "ErrImageNeverPull": (True, "its image is not on the node, and image_pull_policy is Never"),
    "InvalidImageName": (True, "the name of its image is not valid"),
    "ImageInspectError": (True, "its image cannot be used"),
    "CreateContainerConfigError": (True, "its container cannot be made"),
    "CreateContainerError": (True, "its container cannot be made"),
    "RunContainerError": (True, "its container cannot be started"),
    "ContainerCreating": (False, "its container is being made"),
    "PodInitializing": (False, "its container is being made"),
}
AT_ONCE = ("InvalidImageName", "ErrImageNeverPull")
"""Nothing changes by waiting."""
NOT_STARTED = ("ContainerCannotRun", "StartError", "RunContainerError")
_MISSING = re.compile(r'exec:? "?([^":]+)"?: .*(not found|no such file)', re.IGNORECASE)
_SHOWN_EVENTS = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")


def _ended(pod: Document, status: Document, events: list[PodEvent]) -> tuple[EndKind, str] | None:
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    known = _disruption(status, events)
    if pod["metadata"].get("deletionTimestamp"):
        known = known or _deleted(status, events)  # it ended because it had to
    if known and (status["phase"] == "Failed" or pod["metadata"].get("deletionTimestamp")):
        return known
    container = _container(status, "containerStatuses", CONTAINER)
    ended = (container.get("state") or {}).get("terminated") or {}
    if not ended:
        ended = (_container(status, "initContainerStatuses", "").get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            said = _said("the init container from runner_image failed", ended.get("message"))
            return EndKind.FAILED, f"Kubernetes: {said}"
    reason = ended.get("reason") or ""
    if reason == "OOMKilled":
        return EndKind.OUT_OF_MEMORY, "Kubernetes: it used more memory than it had asked for"
    if reason in NOT_STARTED:
        return EndKind.FAILED, f"Kubernetes: {_not_started(ended.get('message') or '')}"
    if not ended and status["phase"] == "Failed":
        said = _said("its pod failed", status.get("message") or status.get("reason"))
        return EndKind.NODE_LOST, f"Kubernetes: {said}"
    return EndKind.EXITED, "Kubernetes: it ended by itself"


def _disruption(status: Document, events: list[PodEvent]) -> tuple[EndKind, str] | None:
    reasons = [(status.get("reason") or "", status.get("message") or "")]
    reasons += [
        (one.get("reason") or "", one.get("message") or "")
        for one in status.get("conditions") or ()
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True"
    ]
    reasons += [(one.reason, one.message) for one in reversed(events) if one.reason in _EVENTS]
    for reason, message in reasons:
        if reason in ENDS:
            end, words = ENDS[reason]
            return end, f"Kubernetes: {_said(words, message)}"
        if match := _OUT_OF.fullmatch(reason):
            return EndKind.NODE_LOST, f"Kubernetes: {_said(f'its node ran out of {match[1]}', message)}"
    return None


def _removed(last: Document, status: Document, events: list[PodEvent]) -> tuple[EndKind, str]:
    """If nobody waited for its node to end it, the node is gone, as far as Kubernetes or an operator knows."""
    state = _container(status, "containerStatuses", CONTAINER).get("state") or {}
    at_once = last["metadata"].get("deletionGracePeriodSeconds") == 0
    if at_once and "running" in state:
        lost = EndKind.NODE_LOST, "Kubernetes: its pod was removed without an answer of its node"
        return _disruption(status, events) or lost
    return _deleted(status, events)


def _deleted(status: Document, events: list[PodEvent]) -> tuple[EndKind, str]:
    return _disruption(status, events) or (EndKind.CANCELLED, DELETED)


def _lost(pod: Document, status: Document, events: list[PodEvent], now: float) -> tuple[EndKind, str] | None:
    """A pod that is being deleted stays for ever if its node does not answer."""
    since = pod["metadata"].get("deletionTimestamp")
    if not since or not now:
        return None
    # The time already contains the grace time.
    if now - _seconds(since) < _LOST_SECONDS:
        return None
    known = _disruption(status, events)
    return known or (EndKind.NODE_LOST, "Kubernetes: its node does not answer")


def _pending(pod: Document, status: Document, events: list[PodEvent], now: float, node: str) -> PodState:
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            words = (
                "no node has room for it" if one.get("reason") == "Unschedulable" else "it waits for a node"
            )
            return PodState(Phase.PENDING, f"Kubernetes: {_said(words, one.get('message'))}")
    if not node:
        return PodState(Phase.PENDING, "Kubernetes: it waits for the scheduler")
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [(one.get("state") or {}).get("waiting") or {} for one in containers]
    for one in waiting:
        reason = one.get("reason") or ""
        final, words = WAITS.get(reason, (False, ""))
        if not final:
            continue
        words = f"Kubernetes: {_said(words, one.get('message') or _last_failure(events))}"
        started = status.get("startTime") or pod["metadata"].get("creationTimestamp")
        late = now and started and now - _seconds(started) > IMAGE_SECONDS
        if reason in AT_ONCE or late:
            return PodState(Phase.ENDED, words, EndKind.FAILED, node)
        return PodState(Phase.PENDING, words, node=node)
    said = next((one.message for one in reversed(events) if one.reason in _SHOWN_EVENTS), "")
    return PodState(
        Phase.PENDING, f"Kubernetes: {_said(f'its container is being made on {node}', said)}", node=node
    )


def _last_failure(events: list[PodEvent]) -> str:
    return next((one.message for one in reversed(events) if one.reason == "Failed"), "")


def _not_started(message: str) -> str:
    if match := _MISSING.search(message):
        return (
            f"its image has no {match[1].strip()}, which runs beside every program; "
            "use an image with Python 3.8 or newer, or set [clusters.X] runner_image"
        )
    return _said("its container cannot be started", message)


def _container(status: Document, field: str, name: str) -> Document:
    found = status.get(field) or ()
    return next((one for one in found if not name or one.get("name") == name), {})


def _said(words: str, message: str | None) -> str:
    message = " ".join((message or "").split())[:_LONGEST].rstrip(".")
    return f"{words}: {message}" if message else words


def _for_all(pending: Mapping[ReplicaName, PodState], count: int) -> str:
    reasons = {state.why for state in pending.values()}
    first = next(iter(pending.values())).why
    if len(reasons) == 1 and len(pending) == count:
        return first
    name, state = next(iter(pending.items()))
    others = f" and {len(pending) - 1} more" if len(pending) > 1 else ""
    return f"{name}{others} of {count}: {state.why}"


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
