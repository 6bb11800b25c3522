"""Checks a cluster for `turnout cluster check`: credentials, rights, and last a pod that connects to the service."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator

from turnout.engines import Unreachable
from turnout.engines.kubernetes.api import Api, ApiError
from turnout.engines.kubernetes.gang_schedulers import choose
from turnout.engines.kubernetes.gangs import Document
from turnout.engines.kubernetes.manifest import rights
from turnout.engines.kubernetes.objects import CONTAINER, MANAGED_BY, check_pod
from turnout.engines.kubernetes.settings import KubernetesSettings
from turnout.engines.kubernetes.states import PodState, pod_state
from turnout.engines.remote import CheckResult, EndKind, Phase, RunnerCall

POD_SECONDS = 120.0
"""How long the pod may wait and run."""
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_IN_POD = """\
import json, platform, ssl, sys, urllib.request
try:
    context = ssl._create_unverified_context()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    answer = json.loads(opener.open(sys.argv[1], timeout=15).read())
    said = "reached" if answer.get("turnout") else "something else answers"
except Exception as error:
    said = str(error) or type(error).__name__
with open("/dev/termination-log", "w") as file:
    file.write("Python " + platform.python_version() + ": " + said)
"""


async def checks(
    api: Api, settings: KubernetesSettings, runner: RunnerCall, cluster: str, seconds: float = POD_SECONDS
) -> AsyncIterator[CheckResult]:
    """Ends after the first failure that makes the other checks pointless."""
    try:
        access = await api.access()
        settings = settings._replace(namespace=settings.namespace or access.namespace)
        version = await api.get("/version")
        yield CheckResult(
            "API server", True, f"{access.server.geturl()}: Kubernetes {version.get('gitVersion', '?')}"
        )
        groups = {one["name"] for one in (await api.get("/apis")).get("groups") or ()}
        scheduler = choose(groups, settings)
        missing = await _missing_rights(api, settings, scheduler.name if scheduler else "none")
        what = f"rights in namespace {settings.namespace}"
        if missing:
            advice = f"`turnout cluster manifest {cluster}` prints a Role that has them"
            yield CheckResult(what, False, f"missing: {', '.join(missing)}. {advice}")
            return
        yield CheckResult(what, True)
        placed = f"by {scheduler.name}" if scheduler else f"by Turnout, within {settings.gang_seconds:g} s"
        yield CheckResult("jobs of several replicas start whole", True, placed)
        async for result in _in_pod(api, settings, runner, seconds):
            yield result
    except (Unreachable, ApiError) as error:
        yield CheckResult("API server", False, error.message)


async def _missing_rights(api: Api, settings: KubernetesSettings, scheduler: str) -> list[str]:
    asked = [(right, verb) for right in rights(settings, scheduler) for verb in right.verbs]

    async def allowed(group: str, resource: str, verb: str) -> bool:
        attributes = {
            "namespace": settings.namespace, "group": group, "resource": resource, "verb": verb,
        }  # fmt: skip
        body = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        answer = await api.request("POST", _REVIEWS, body | {"spec": {"resourceAttributes": attributes}})
        return bool((answer.get("status") or {}).get("allowed"))

    found = [await allowed(right.group, right.resource, verb) for right, verb in asked]
    return [f"{verb} {right.resource}" for (right, verb), ok in zip(asked, found, strict=True) if not ok]


async def _in_pod(
    api: Api, settings: KubernetesSettings, runner: RunnerCall, seconds: float
) -> AsyncIterator[CheckResult]:
    what = "a pod runs"
    image = settings.image or next(iter(settings.images.values()), "") or settings.runner_image
    if not image:
        yield CheckResult(what, True, "not tried: the settings have no `image`, so jobs must name their own")
        return
    name = f"turnout-check-{secrets.token_hex(4)}"
    command = ["-c", _IN_POD, f"{runner.endpoint}/runner/v1/ping"]
    pod = check_pod(settings, image, command)
    pod["metadata"] = {"name": name, "labels": dict(MANAGED_BY)}
    path = f"/api/v1/namespaces/{settings.namespace}/pods"
    try:
        await api.request("POST", path, pod)
    except ApiError as error:
        yield CheckResult(what, False, f"Kubernetes refused the pod: {error.message}")
        return
    try:
        found, state = await _ended(api, f"{path}/{name}", seconds)
    finally:
        with contextlib.suppress(ApiError, Unreachable):
            await api.request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
    said = _message(found)
    if state.phase is not Phase.ENDED:
        yield CheckResult(what, False, f"it still waits after {seconds:g} s. {state.why}")
    elif not said.startswith("Python "):
        # A pod that exited by itself has no reason to show.
        why = state.why if state.end is not EndKind.EXITED else "it printed nothing"
        yield CheckResult(what, False, f"{why} (image {image})")
    else:
        version, _, answer = said.partition(": ")
        yield CheckResult(what, True, f"{version} in {image}, on {state.node}")
        reached = answer == "reached"
        yield CheckResult(f"a pod reaches {runner.endpoint}", reached, "" if reached else answer)


async def _ended(api: Api, path: str, seconds: float) -> tuple[Document, PodState]:
    """Waits until the pod has ended or the time is over, and returns the pod."""
    end = time.monotonic() + seconds
    while True:
        pod = await api.get(path)
        state = pod_state(pod, now=time.time())
        if state.phase is Phase.ENDED or time.monotonic() > end:
            return pod, state
        await asyncio.sleep(0.5)


def _message(pod: Document) -> str:
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        if one.get("name") == CONTAINER:
            return ((one.get("state") or {}).get("terminated") or {}).get("message") or ""
    return ""
