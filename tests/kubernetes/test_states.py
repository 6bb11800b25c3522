"""What is said of pods. The documents in `recorded/` are what a real Kubernetes said: see `test_faults.py`."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnout.engines.kubernetes.gangs import trimmed
from turnout.engines.kubernetes.states import (
    DELETED,
    ENDS,
    WORST,
    PodEvent,
    PodState,
    gang_job,
    gone_state,
    pod_state,
)
from turnout.engines.remote import EndKind, Phase
from turnout.job import ReplicaName

RECORDED = Path(__file__).parent / "recorded"
LATER = 4e9
A, B = ReplicaName("worker", 0), ReplicaName("worker", 1)


def recorded(name: str) -> tuple[dict[str, Any], list[PodEvent]]:
    found = json.loads((RECORDED / f"{name}.json").read_text())
    events = [PodEvent(one["reason"], one["message"]) for one in found["events"]]
    return trimmed(found["pods"][0]), events


@pytest.mark.parametrize(
    ("name", "phase", "end", "words"),
    [
        (
            "unschedulable",
            Phase.PENDING,
            None,
            "no node has room for it: 0/1 nodes are available: 1 Insufficient cpu",
        ),
        ("image-not-pulled", Phase.PENDING, None, "its image cannot be pulled: "),
        (
            "no-python",
            Phase.ENDED,
            EndKind.FAILED,
            "its image has no python3, which runs beside every program",
        ),
        ("runner-killed", Phase.ENDED, EndKind.EXITED, "it ended by itself"),
    ],
)
def test_what_kubernetes_said(name: str, phase: Phase, end: EndKind | None, words: str):
    pod, events = recorded(name)
    state = pod_state(pod, events)
    assert (state.phase, state.end) == (phase, end)
    assert state.why.startswith(f"Kubernetes: {words}")


def test_an_image_that_cannot_be_pulled_for_long_is_the_end():
    pod, events = recorded("image-not-pulled")
    state = pod_state(pod, events, LATER)
    assert (state.phase, state.end) == (Phase.ENDED, EndKind.FAILED)
    assert "localhost/absent:1" in state.why


def made(
    phase: str, status: dict[str, Any] | None = None, node: str = "n1", **metadata: Any
) -> dict[str, Any]:
    found = {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z", **metadata}
    return {"metadata": found, "spec": {"nodeName": node}, "status": {"phase": phase, **(status or {})}}


def ended(**details: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "program", "state": {"terminated": details}}]}


@pytest.mark.parametrize(("reason", "wanted"), ENDS.items())
def test_reasons_of_an_end(reason: str, wanted: tuple[EndKind, str]):
    state = pod_state(made("Failed", {"reason": reason, "message": "low on disk."}))
    assert (state.end, state.why) == (wanted[0], f"Kubernetes: {wanted[1]}: low on disk")
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    assert pod_state(made("Failed", {"conditions": [disruption]})).end is wanted[0]


@pytest.mark.parametrize(
    ("pod", "end", "words"),
    [
        (made("Succeeded", ended(exitCode=0, reason="Completed")), EndKind.EXITED, "it ended by itself"),
        (made("Failed", ended(exitCode=137, reason="OOMKilled")), EndKind.OUT_OF_MEMORY, "more memory than"),
        (made("Failed", {"reason": "OutOfcpu"}), EndKind.NODE_LOST, "its node ran out of cpu"),
        (made("Failed", {"message": "no idea"}), EndKind.NODE_LOST, "its pod failed: no idea"),
        (
            made("Failed", ended(exitCode=128, reason="StartError", message="permission denied")),
            EndKind.FAILED,
            "its container cannot be started: permission denied",
        ),
    ],
)
def test_other_ends(pod: dict[str, Any], end: EndKind, words: str):
    state = pod_state(pod)
    assert (state.phase, state.end) == (Phase.ENDED, end)
    assert words in state.why


def test_a_pod_that_has_to_go_says_why_while_it_is_there():
    going = made("Running", deletionTimestamp="2026-01-01T00:00:30Z")
    assert pod_state(going) == (Phase.RUNNING, DELETED, EndKind.CANCELLED, "n1")
    preempted = [PodEvent("Preempted", "by turnout/important on node n1")]
    assert pod_state(going, preempted).end is EndKind.PREEMPTED
    assert gone_state(going, preempted).end is EndKind.PREEMPTED
    assert gone_state(None) == (Phase.ENDED, DELETED, EndKind.CANCELLED, "")


def test_a_pod_that_was_deleted_and_has_ended_since():
    for phase in ("Succeeded", "Failed"):
        pod = made(phase, ended(exitCode=143, reason="Error"), deletionTimestamp="2026-01-01T00:00:30Z")
        assert pod_state(pod) == (Phase.ENDED, DELETED, EndKind.CANCELLED, "n1")
        assert gone_state(pod) == (Phase.ENDED, DELETED, EndKind.CANCELLED, "n1")


def test_a_pod_that_has_to_go_and_stays_is_on_a_lost_node():
    going = made("Running", deletionTimestamp="2026-01-01T00:00:30Z")
    state = pod_state(going, now=LATER)
    assert (state.phase, state.end, state.why) == (
        Phase.ENDED,
        EndKind.NODE_LOST,
        "Kubernetes: its node does not answer",
    )


def test_a_volume_that_cannot_be_mounted_is_named():
    waiting = {
        "containerStatuses": [{"name": "program", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    }
    events = [PodEvent("Scheduled", "assigned"), PodEvent("FailedMount", 'claim "data" not found')]
    state = pod_state(made("Pending", waiting), events)
    assert state.why == 'Kubernetes: its container is being made on n1: claim "data" not found'


def test_a_gang_waits_for_its_last_pod():
    waits = PodState(Phase.PENDING, "Kubernetes: its image cannot be pulled")
    runs = PodState(Phase.RUNNING, node="n1")
    job = gang_job("h", "g", {A: runs, B: waits})
    assert (job.phase, job.why) == (Phase.PENDING, "worker-1 of 2: Kubernetes: its image cannot be pulled")
    assert gang_job("h", "g", {A: waits, B: waits}).why == "Kubernetes: its image cannot be pulled"
    assert gang_job("h", "g", {A: runs, B: runs}).phase is Phase.RUNNING


def test_a_pod_that_has_to_go_is_not_an_end_yet():
    going = PodState(Phase.RUNNING, DELETED, EndKind.CANCELLED, "n1")
    job = gang_job("h", "g", {A: going, B: PodState(Phase.RUNNING, node="n1")})
    assert (job.phase, job.end, job.why, job.gone) == (Phase.RUNNING, EndKind.CANCELLED, DELETED, {})


def test_the_worst_end_explains_that_of_the_gang():
    left = PodState(Phase.ENDED, "it ended by itself", EndKind.EXITED, "n1")
    lost = PodState(Phase.ENDED, "node lost", EndKind.NODE_LOST, "n2")
    job = gang_job("h", "g", {A: left, B: lost})
    assert (job.phase, job.end, job.why, job.nodes) == (Phase.ENDED, EndKind.NODE_LOST, "node lost", "n1, n2")
    assert set(job.gone) == {str(A), str(B)}
    assert set(WORST) == set(EndKind)
