"""What Kubernetes does to pods, and what the API server does to the engine: the right end each time, in words."""

import asyncio
import contextlib
import json
import os
import signal
import urllib.error
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engines.conformance import PRINT_AND_WAIT, WORKER, starts, two
from tests.engines.harness import MASTER
from tests.kubernetes.daemons import ADMIN, NAMESPACE, Kubernetes
from tests.kubernetes.harness import KubernetesHarness, left
from tests.kubernetes.images import BARE, PYTHON
from tests.kubernetes.proxy import FaultyProxy
from turnout.engines.kubernetes import placement, states
from turnout.engines.remote import lifecycle
from turnout.job import Attempt, Cause, Ended, Mount, Pending, Policy, Program, Resources, Role, Started
from turnout.job.resources import GIB

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240, func_only=True)]

MIB = 1 << 20
SMALL = Resources.of(0.1, 64 * MIB)
COUNT = "import time\nfor i in range(int(2 * {})):\n    print(i, flush=True); time.sleep(0.5)"
AWAY = 60.0
RECORD = os.environ.get("TURNOUT_RECORD_KUBERNETES")
"""A directory for what Kubernetes says in each of these tests: see `test_states.py`."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "IMAGE_SECONDS", 4.0)
    monkeypatch.setattr(states, "_LOST_SECONDS", 2.0)
    monkeypatch.setattr(lifecycle, "_SETTLE_SECONDS", 2.0)
    monkeypatch.setattr(lifecycle, "_RETRY_SECONDS", 0.5)
    monkeypatch.setattr(placement, "LONGEST_PAUSE", 1.0)


@contextlib.asynccontextmanager
async def harness(kubernetes: Kubernetes, path: Path, **settings: Any) -> AsyncIterator[KubernetesHarness]:
    async with KubernetesHarness(kubernetes, path, **settings) as one:
        yield one


@pytest.fixture
async def engine(kubernetes: Kubernetes, tmp_path: Path) -> AsyncIterator[KubernetesHarness]:
    async with harness(kubernetes, tmp_path) as one:
        yield one


async def ended(
    one: KubernetesHarness, attempt: Attempt, replica: Any = MASTER, seconds: float = 120
) -> Ended:
    found: Any = await waited(
        one, lambda r: isinstance(r, Ended) and (r.attempt, r.replica) == (attempt, replica)
    )
    return found


async def waits(one: KubernetesHarness, attempt: Attempt, words: str) -> str:
    found: Any = await waited(
        one, lambda r: isinstance(r, Pending) and r.attempt == attempt and words in r.message
    )
    return found.message


async def waited(one: KubernetesHarness, wanted: Callable[[Any], bool], seconds: float = 120) -> Any:
    async with asyncio.timeout(seconds):
        while True:
            with contextlib.suppress(TimeoutError):
                return await one.wait(wanted)


def pods_of(kubernetes: Kubernetes, attempt: Attempt, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    listed = kubernetes.list("pods", namespace)
    return [pod for pod in listed if pod["metadata"]["labels"].get("turnout/job") == str(attempt.job)]


def record(kubernetes: Kubernetes, name: str, attempt: Attempt) -> None:
    """Keeps the pods and their events as they are now."""
    if RECORD:
        pods = pods_of(kubernetes, attempt)
        names = {pod["metadata"]["name"] for pod in pods}
        events = [one for one in kubernetes.list("events") if one["involvedObject"]["name"] in names]
        for item in (*pods, *events):
            item["metadata"].pop("managedFields", None)
            item.get("spec", {}).pop("volumes", None)
        Path(RECORD, f"{name}.json").write_text(json.dumps({"pods": pods, "events": events}, indent=1))


def container_process(attempt: Attempt) -> psutil.Process:
    """The process of the runner, as this machine sees it."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, IndexError):
            if f"lab/{attempt}/master-0" in process.cmdline()[-1]:
                return process
    raise AssertionError(f"no process has {attempt}")


# A pod that cannot start.


async def test_an_image_that_cannot_be_pulled(kubernetes: Kubernetes, tmp_path: Path):
    async with harness(kubernetes, tmp_path, image="localhost/absent:1") as one:
        attempt = await one.start("true", resources=SMALL)
        await waits(one, attempt, "its image cannot be pulled")
        record(kubernetes, "image-not-pulled", attempt)
        end = await ended(one, attempt)
    assert end.cause is Cause.REFUSED
    assert "Kubernetes: its image cannot be pulled" in end.message
    assert "localhost/absent:1" in end.message


async def test_an_image_without_python(kubernetes: Kubernetes, tmp_path: Path):
    async with harness(kubernetes, tmp_path, image=BARE) as one:
        attempt = await one.start("true", resources=SMALL)
        end = await ended(one, attempt)
        record(kubernetes, "no-python", attempt)
    assert end.cause is Cause.REFUSED
    assert "its image has no python3" in end.message
    assert "runner_image" in end.message


async def test_another_image_brings_python(kubernetes: Kubernetes, tmp_path: Path):
    async with harness(kubernetes, tmp_path, image=BARE, runner_image=PYTHON) as one:
        attempt = await one.start("sh", "-c", "python3 -c 'print(6 * 7)'", resources=SMALL)
        end = await ended(one, attempt)
        assert (end.cause, end.code) == (Cause.EXIT, 0), end
        assert one.output(attempt) == "42\n"


async def test_no_node_has_room(engine: KubernetesHarness, kubernetes: Kubernetes):
    attempt = await engine.start("true", resources=Resources.of(64, GIB))
    words = await waits(engine, attempt, "no node has room for it")
    assert "Insufficient cpu" in words
    record(kubernetes, "unschedulable", attempt)
    await engine.engine.stop(attempt, 0)
    assert (await ended(engine, attempt)).cause is Cause.STOPPED


def admits_no_service(kubernetes: Kubernetes, namespace: str) -> bool:
    """Whether its quota is enforced already: the API server learns of it some time after it was made."""
    spec = {"clusterIP": "None", "ports": [{"port": 1}]}
    try:
        path = f"/api/v1/namespaces/{namespace}/services?dryRun=All"
        kubernetes.request("POST", path, {"metadata": {"name": "probe"}, "spec": spec})
    except urllib.error.HTTPError as error:
        return b"exceeded quota" in error.read()
    return False


async def test_the_quota_of_the_namespace(kubernetes: Kubernetes, tmp_path: Path):
    kubernetes.request("POST", "/api/v1/namespaces", {"metadata": {"name": "small"}})
    quota = {"metadata": {"name": "one"}, "spec": {"hard": {"pods": "1", "services": "0"}}}
    kubernetes.request("POST", "/api/v1/namespaces/small/resourcequotas", quota)
    await asyncio.to_thread(kubernetes.wait, lambda: admits_no_service(kubernetes, "small"))
    async with harness(kubernetes, tmp_path, namespace="small") as one:
        first = await one.python(PRINT_AND_WAIT, resources=SMALL)
        await one.wait_for_output(first, "running\n")
        second = await one.start("true", resources=SMALL)
        words = await waits(one, second, "the quota of the namespace is used up")
        assert "exceeded quota: one, requested: pods=1, used: pods=1, limited: pods=1" in words
        await one.engine.stop(first, 0)
        await ended(one, first)
        await one.engine.forget(first)
        assert (await ended(one, second)).code == 0


async def test_what_the_cluster_does_not_admit(kubernetes: Kubernetes, tmp_path: Path):
    kubernetes.request("POST", "/api/v1/namespaces", {"metadata": {"name": "strict"}})
    limit = {"type": "Container", "max": {"memory": "32Mi"}}
    kubernetes.request(
        "POST",
        "/api/v1/namespaces/strict/limitranges",
        {"metadata": {"name": "max"}, "spec": {"limits": [limit]}},
    )
    async with harness(kubernetes, tmp_path, namespace="strict") as one:
        end = await ended(one, await one.start("true", resources=SMALL))
    assert end.cause is Cause.REFUSED
    assert "Kubernetes refused its pod: " in end.message
    assert "maximum memory usage per Container is 32Mi" in end.message


async def test_a_volume_is_mounted_without_a_copy(kubernetes: Kubernetes, tmp_path: Path):
    shared = kubernetes.directory / "shared"
    (shared / "sets").mkdir(parents=True)
    (shared / "sets").chmod(0o777)
    (shared / "sets/in.txt").write_text("from the volume")
    kubernetes.make_claim("claim", shared)
    async with harness(kubernetes, tmp_path, volumes={"nfs://10.0.0.9/data": "claim"}) as one:
        mounts = (Mount("nfs://10.0.0.9/data/sets", "/data"),)
        script = "cat /data/in.txt; pwd; echo done > /data/out.txt"
        attempt = await one.start("sh", "-c", script, mounts=mounts, resources=SMALL)
        end = await ended(one, attempt)
        assert (end.cause, end.code) == (Cause.EXIT, 0), end
        assert one.output(attempt) == "from the volume/data\n"
    assert (shared / "sets/out.txt").read_text() == "done\n"


# Gangs.


# It holds its place until the test lets it go.
HOLD = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))).recv(1)"


class Gate:
    """Programs that have started wait here until it opens."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._open = asyncio.Event()

    async def __aenter__(self) -> "Gate":
        self._listener = await asyncio.start_server(self._hold, self.host, 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open.set()
        self._listener.close()

    async def _hold(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        writer.close()

    def open(self) -> None:
        self._open.set()

    def pair(self, cores: float) -> tuple[Role, ...]:
        """A gang of two that waits here. `cores`: of each."""
        size = Resources.of(cores, 64 * MIB)
        command = Program(("python", "-c", HOLD, self.host, str(self.port)))
        return (
            Role("master", command, resources=size, leads=True, task_type="chief"),
            Role("worker", command, resources=size),
        )


async def test_two_gangs_with_room_for_one_and_a_half(kubernetes: Kubernetes, tmp_path: Path):
    await asyncio.to_thread(kubernetes.clear)  # pods of the tests before
    three_fit = 0.3 * kubernetes.cores()
    async with Gate(kubernetes.address) as gate, harness(kubernetes, tmp_path, gang_seconds=4) as one:
        attempts = [await one.start(roles=gate.pair(three_fit)) for _ in range(2)]
        # Either may be the first to be placed. It keeps its place, so the other tries in vain until the gate opens.
        started: Any = await waited(one, lambda r: isinstance(r, Started))
        first = started.attempt
        [second] = [attempt for attempt in attempts if attempt != first]
        words = await waits(one, second, "1 of 2 replicas had")
        assert "no node has room for it" in words
        assert "Insufficient cpu" in words
        assert "gave it back" in words
        assert not starts(one, second)
        gate.open()
        for attempt in (first, second):
            for replica in (MASTER, WORKER):
                end = await ended(one, attempt, replica)
                assert (end.cause, end.code) == (Cause.EXIT, 0), end
            await one.engine.forget(attempt)
        assert all(len(starts(one, attempt)) == 2 for attempt in attempts)


async def test_a_new_process_places_what_the_last_one_had_only_submitted(
    kubernetes: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with harness(kubernetes, tmp_path) as one:
        with monkeypatch.context() as patch:
            patch.setattr(placement.Placement, "begin", lambda *_: None)
            attempt = await one.start(roles=two("print('placed')", "print('placed')"))
            await waits(one, attempt, "its pods are being made")
            assert pods_of(kubernetes, attempt) == []
            await one.disconnect()
        await one.reconnect()
        for replica in (MASTER, WORKER):
            assert (await ended(one, attempt, replica)).code == 0
            assert one.output(attempt, replica) == "placed\n"


# Pods that end from outside.


async def test_a_pod_of_higher_priority_takes_the_place(engine: KubernetesHarness, kubernetes: Kubernetes):
    kubernetes.request(
        "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000}
    )
    most = 0.75 * kubernetes.cores()
    attempt = await engine.python(PRINT_AND_WAIT, resources=Resources.of(most, 64 * MIB))
    await engine.wait_for_output(attempt, "running\n")
    container = {
        "name": "c", "image": PYTHON, "command": ["sleep", "1"], "resources": {"requests": {"cpu": str(most)}},
    }  # fmt: skip
    spec = {"restartPolicy": "Never", "priorityClassName": "high", "containers": [container]}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    kubernetes.request("POST", path, {"metadata": {"name": "important", "labels": {}}, "spec": spec})
    try:
        end = await ended(engine, attempt)
        assert end.cause is Cause.PREEMPTED, end
        assert "a pod of higher priority took its place" in end.message
    finally:
        kubernetes.request("DELETE", f"{path}/important", {"gracePeriodSeconds": 0})


async def test_a_node_that_evicts_its_pods(engine: KubernetesHarness, kubernetes: Kubernetes):
    attempt = await engine.python(PRINT_AND_WAIT, resources=SMALL, policy=Policy(grace=0))
    await engine.wait_for_output(attempt, "running\n")
    kubernetes.taint({"key": "maintenance", "effect": "NoExecute"})
    try:
        end = await ended(engine, attempt)
    finally:
        kubernetes.taint()
    assert end.cause is Cause.LOST, end
    assert "its node does not answer, or must not be used any more" in end.message


async def test_a_runner_that_is_killed(engine: KubernetesHarness, kubernetes: Kubernetes):
    attempt = await engine.python(PRINT_AND_WAIT, resources=SMALL)
    await engine.wait_for_output(attempt, "running\n")
    container_process(attempt).kill()
    end = await ended(engine, attempt)
    record(kubernetes, "runner-killed", attempt)
    assert (end.cause, end.message) == (Cause.LOST, "its runner ended without a report")


async def test_a_node_that_is_gone(engine: KubernetesHarness, kubernetes: Kubernetes):
    attempt = await engine.python(PRINT_AND_WAIT, resources=SMALL, policy=Policy(grace=0))
    await engine.wait_for_output(attempt, "running\n")
    # What the API server knows of a pod lags behind the pod.
    await asyncio.to_thread(
        kubernetes.wait, lambda: pods_of(kubernetes, attempt)[0]["status"]["phase"] == "Running"
    )
    kubernetes.stop("kubelet", signal.SIGKILL)
    try:
        container_process(attempt).kill()
        # As Kubernetes does with the pods of a node that was removed.
        [pod] = pods_of(kubernetes, attempt)
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        kubernetes.request("DELETE", path, {"gracePeriodSeconds": 0})
        end = await ended(engine, attempt)
    finally:
        kubernetes.start("kubelet")
        await asyncio.to_thread(kubernetes.wait, kubernetes.is_ready)
    assert end.cause is Cause.LOST
    assert "removed without an answer of its node" in end.message, end


# The API server.


async def test_an_api_server_that_is_away_for_a_minute(engine: KubernetesHarness, kubernetes: Kubernetes):
    short, long = [
        await engine.python(COUNT.format(seconds), resources=SMALL) for seconds in (AWAY / 2, AWAY + 10)
    ]
    stopped = await engine.python(PRINT_AND_WAIT, resources=SMALL)
    for attempt in (short, long, stopped):
        await engine.started(attempt)
    kubernetes.stop("kube-apiserver", signal.SIGKILL)
    back = asyncio.get_running_loop().time() + AWAY
    try:
        meanwhile = await engine.start("echo", "late", resources=SMALL)
        assert "cannot be reached" in await waits(engine, meanwhile, "10.78.")
        # What runs needs the service only.
        await engine.engine.stop(stopped, 5)
        assert (await ended(engine, stopped)).cause is Cause.STOPPED
        assert (await ended(engine, short)).code == 0
        assert "cannot be reached" in engine.engine.trouble()
        await asyncio.sleep(back - asyncio.get_running_loop().time())
    finally:
        kubernetes.start("kube-apiserver")
        await asyncio.to_thread(kubernetes.wait, kubernetes.is_up)
    assert (await ended(engine, meanwhile)).code == 0
    assert (await ended(engine, long)).code == 0
    for attempt, seconds in ((short, AWAY / 2), (long, AWAY + 10)):
        assert engine.output(attempt) == "".join(f"{i}\n" for i in range(int(2 * seconds)))
    everything = (short, long, stopped, meanwhile)
    assert all(len(starts(engine, attempt)) == 1 for attempt in everything)
    async with asyncio.timeout(60):
        while engine.engine.trouble():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    for attempt in everything:
        await engine.engine.forget(attempt)
    async with asyncio.timeout(120):
        while await asyncio.to_thread(left, kubernetes):  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def test_an_api_server_that_does_not_answer(engine: KubernetesHarness, kubernetes: Kubernetes):
    running = await engine.python(COUNT.format(20), resources=SMALL)
    await engine.started(running)
    kubernetes.pause("kube-apiserver")
    try:
        meanwhile = await engine.start("echo", "late", resources=SMALL)
        await waits(engine, meanwhile, "does not answer in time")
        assert (await ended(engine, running)).code == 0
    finally:
        kubernetes.pause("kube-apiserver", on=False)
    assert (await ended(engine, meanwhile)).code == 0
    assert engine.output(meanwhile) == "late\n"
    assert all(len(starts(engine, attempt)) == 1 for attempt in (running, meanwhile))


async def test_answers_that_are_wrong_or_late(kubernetes: Kubernetes, tmp_path: Path):
    certificate = kubernetes.directory / "certificates/apiserver.crt"
    async with FaultyProxy(kubernetes.server, certificate) as proxy:
        kubeconfig = tmp_path / "kubeconfig"
        kubernetes.write_kubeconfig(kubeconfig, ADMIN, server=proxy.url)
        async with harness(kubernetes, tmp_path / "engine", kubeconfig=str(kubeconfig)) as one:
            first = await one.python(PRINT_AND_WAIT, resources=SMALL)
            await one.wait_for_output(first, "running\n")
            for fault in (429, 500, 503):
                proxy.answer = fault
                proxy.cut()
                attempt = await one.start("true", resources=SMALL)
                assert f"told to fail ({fault})" in await waits(one, attempt, "the API server answers")
                proxy.answer = 0
                assert (await ended(one, attempt)).code == 0
            proxy.expire_watches = 2
            proxy.cut()
            proxy.delay = 0.5
            attempt = await one.start("true", resources=SMALL)
            assert (await ended(one, attempt)).code == 0
            async with asyncio.timeout(60):
                while proxy.expire_watches:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            assert not any(isinstance(r, Ended) and r.attempt == first for r in one.reports)
            # The watch works again: a pod that is deleted by hand is noticed.
            [pod] = pods_of(kubernetes, first)
            kubernetes.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}")
            end = await ended(one, first)
            assert (end.cause, end.message) == (Cause.STOPPED, states.DELETED)
