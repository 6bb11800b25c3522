"""Gangs of two Python programs that sleep for a second, on a real Kubernetes: through the service, and as plain pods.

Needs root and kubectl. Kubernetes is built first if the cache of the tests does not have it.
"""

import contextlib
import json
import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from bench.client import Requests, flood, job_body
from bench.floor import Floor
from bench.service import Service, running
from bench.table import Row, Table
from tests.kubernetes.daemons import NAMESPACE, Kubernetes
from tests.kubernetes.images import PYTHON

SLEEP = ("python3", "-c", "import time; time.sleep(1)")
WORKER = {"WorkerType": "0U0G0P", "WorkerCount": 1}
SECONDS = 300


def kubernetes(table: Table, directory: Path, floor: Floor) -> None:
    if shutil.which("kubectl") is None:
        raise RuntimeError("kubectl is not installed")
    count, rounds = (10, 1) if table.quick else (30, 3)
    step = table.steps("kubernetes", 2 * rounds + 1)
    ours, bare = list[float](), list[float]()
    with running(directory / "without") as service:
        without = _resident(service)
    with Kubernetes() as cluster:
        settings = (
            '[server]\nhost = "0.0.0.0"\n'
            f'[clusters.ap-beijing]\nengine = "kubernetes"\nkubeconfig = "{cluster.kubeconfig}"\nimage = "{PYTHON}"\n'
            f'[runner]\nurl = "http://{cluster.address}:{{port}}"\n'
        )
        with running(directory / "with", settings=settings) as service:
            more = _resident(service) - without
        with running(directory / "service", settings=settings) as service:
            _gangs(cluster, service, "warm-up", 2)
            step()
            for number in range(rounds):
                cluster.clear()
                bare.append(_pods(cluster, 2 * count))
                step()
                cluster.clear()
                ours.append(_gangs(cluster, service, f"round-{number}", count))
                step()
    what = f"{count} gangs of two one-second Python programs as pods, to the same pods made with kubectl"
    table.add(Row("kubernetes", what, statistics.median(ours), "s", statistics.median(bare), target=1.2))
    beyond = "the service with the engine, beyond without"
    table.add(Row("kubernetes", beyond, more, "MB", target=15, judged="measured"))


def _gangs(cluster: Kubernetes, service: Service, prefix: str, count: int) -> float:
    """Seconds from the first request until the last job has ended and Kubernetes shows no pod of them as running."""
    names = [f"{prefix}-{number}" for number in range(count)]
    # Not those of the service: a signature is valid for five minutes, and the rounds before may take longer.
    signed = Requests(service.port)
    requests = [signed.call("CreateJob", job_body(name, SLEEP) | WORKER) for name in names]
    with PodEnds(cluster, 2 * count) as ends:
        before = time.perf_counter()
        flood(service.port, requests)
        for name in names:
            service.wait(name)
        ends.wait()
        return time.perf_counter() - before


def _pods(cluster: Kubernetes, count: int) -> float:
    """Seconds from the start of kubectl until Kubernetes shows the last pod as ended."""
    text = "\n".join(json.dumps(_pod(f"bare-{number}")) for number in range(count))
    command = [
        "kubectl",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--namespace={NAMESPACE}",
        "create",
        "-f",
        "-",
    ]
    with PodEnds(cluster, count) as ends:
        before = time.perf_counter()
        subprocess.run(command, input=text, text=True, check=True, capture_output=True)
        ends.wait()
        return time.perf_counter() - before


def _pod(name: str) -> dict[str, Any]:
    container = {"name": "program", "image": PYTHON, "command": list(SLEEP)}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


class PodEnds:
    """Watches until so many pods have ended, for both sides alike."""

    def __init__(self, cluster: Kubernetes, count: int) -> None:
        self._left = count
        self._all = threading.Event()
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        version = cluster.request("GET", path)["metadata"]["resourceVersion"]
        self._events = cluster.open("GET", f"{path}?watch=1&resourceVersion={version}")
        self._thread = threading.Thread(target=self._count, daemon=True)

    def __enter__(self) -> "PodEnds":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._events.close()

    def _count(self) -> None:
        ended: set[str] = set()
        with contextlib.suppress(OSError, ValueError):  # it was closed
            for line in self._events:
                event = json.loads(line)
                pod = event["object"]
                if event["type"] == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed"):
                    ended.add(pod["metadata"]["uid"])
                if len(ended) == self._left:
                    self._all.set()
                    return

    def wait(self) -> None:
        if not self._all.wait(SECONDS):
            raise TimeoutError(f"the pods have not ended within {SECONDS} s")


def _resident(service: Service) -> float:
    """MB, after it has come to rest."""
    assert service.process is not None
    time.sleep(3)
    return psutil.Process(service.process.pid).memory_info().rss / 1e6
