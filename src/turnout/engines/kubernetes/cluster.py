"""A cluster that Kubernetes runs: each replica is a pod, and a ConfigMap owns everything that belongs to a gang."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from pathlib import Path

import msgspec

from turnout import pools
from turnout.engines import Refused, Unreachable
from turnout.engines.kubernetes import gang_schedulers, nodes
from turnout.engines.kubernetes.api import LISTED_METADATA, METADATA, Api, ApiError
from turnout.engines.kubernetes.check import checks
from turnout.engines.kubernetes.cleanup import Cleanup
from turnout.engines.kubernetes.events import PodEvents
from turnout.engines.kubernetes.gangs import Document, Gangs, PlacedGang
from turnout.engines.kubernetes.kubeconfig import read_access
from turnout.engines.kubernetes.objects import (
    GANG,
    OWNER,
    GangObjects,
    gang_labels,
    gang_objects,
    handle_of,
    owner_reference,
    refusal,
    root,
    secret,
    service,
    service_name,
)
from turnout.engines.kubernetes.placement import Placement
from turnout.engines.kubernetes.runner_map import RunnerMap
from turnout.engines.kubernetes.settings import KubernetesSettings
from turnout.engines.kubernetes.watch import PodWatch
from turnout.engines.remote import CheckResult, ClusterJob, ClusterNode, Gang, RunnerCall
from turnout.job import Launch, ReplicaName

_log = logging.getLogger(__name__)

PAUSE = 0.1
"""Between two lists. Each has all gangs, and while pods start, they change many times a second."""
_LIST_SECONDS = 10.0
"""The longest time between two lists."""
_LONGEST_WORDS = 4000
_TRIES = 2


class KubernetesCluster:
    kind = "kubernetes"

    def __init__(self, name: str, settings: KubernetesSettings, directory: Path) -> None:
        """`directory`: where it may keep files."""
        self.name = name
        self._settings = settings
        self._directory = directory
        self._api = Api(partial(read_access, settings.kubeconfig, settings.context, settings.environment))
        self._gangs = Gangs()
        self._runner_map = RunnerMap(self._api)
        self._events = PodEvents(self._api)
        self._placement = Placement(self._api, settings.gang_seconds, self._gangs.changed.set)
        self._cleanup = Cleanup(self._remove, self._gangs.are_starting)
        self._scheduler: gang_schedulers.GangScheduler | None = None
        self._owner = ""
        self._path = ""
        """Of the namespace; empty: not known yet."""

    async def open(self) -> None:
        self._owner = await pools.disk.run(pools.OWN, _owner_id, self._directory)
        self._cleanup.open()

    async def close(self) -> None:
        await self._cleanup.close()
        await self._placement.close()
        self._api.close()

    def refuses(self, launch: Launch) -> str:
        return refusal(launch, self._settings, self.name)

    async def _connect(self) -> str:
        """The path of the namespace. Asks once which schedulers the cluster has."""
        if self._path:
            return self._path
        access = await self._api.access()
        namespace = self._settings.namespace or access.namespace
        self._settings = self._settings._replace(namespace=namespace)
        try:
            found = await self._api.get("/apis")
        except ApiError as error:
            raise Unreachable(f"the API server does not list its API groups: {error.message}") from None
        groups = {one["name"] for one in found.get("groups") or ()}
        self._scheduler = gang_schedulers.choose(groups, self._settings)
        self._path = f"/api/v1/namespaces/{namespace}"
        self._placement.path = self._events.path = self._path
        self._placement.whole = self._scheduler is not None
        return self._path

    # Submit and cancel.

    async def submit(self, gang: Gang) -> str:
        path = await self._connect()
        handle = handle_of(gang.name)
        labels = gang_labels(gang, self._owner)
        try:
            runner_map = await self._runner_map.ensure(path, gang.runner.archive, self._owner)
            objects = gang_objects(gang, self._settings, self._owner, runner_map, self._scheduler)
            owner = owner_reference(await self._create("configmaps", root(objects, gang, self._owner)))
            made = [self._create("secrets", secret(gang, labels, owner))]
            names = service_name(gang.launch, self._settings, handle)
            if names:
                made.append(self._replace_service(service(names, gang, labels, owner)))
            await asyncio.gather(*made)
        except ApiError as error:
            if error.code == 403:
                raise Unreachable(error.message) from None
            raise Refused(f"Kubernetes refused the job: {error.message}") from None
        found = self._gangs.add(handle, gang.name)
        found.objects, found.owner = objects, owner
        self._placement.begin(found)
        self._gangs.changed.set()
        _log.debug("%s is %s in %s", gang.name, handle, path)
        return handle

    async def _create(self, kind: str, document: Document) -> Document:
        """An object that exists already is ours: its name is unique."""
        try:
            return await self._api.request("POST", f"{self._path}/{kind}", document, accept=METADATA)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        if kind != "configmaps":
            return document
        return await self._api.get(f"{self._path}/{kind}/{document['metadata']['name']}", METADATA)

    async def _replace_service(self, document: Document) -> Document:
        """One of ours that exists belongs to an earlier attempt, which has ended, or to an earlier try of this one."""
        path, name = f"{self._path}/services", document["metadata"]["name"]
        for _ in range(_TRIES):
            try:
                return await self._api.request("POST", path, document, accept=METADATA)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
            try:
                await self._delete_service(f"{path}/{name}")
            except ApiError as error:
                # It has gone, or is another one by now.
                if error.code not in (404, 409):
                    raise
        raise Unreachable(f"the Service {name} of an earlier attempt is still there")

    async def _delete_service(self, path: str) -> None:
        """Raises Refused if it is not ours."""
        found = (await self._api.get(path, METADATA))["metadata"]
        if found.get("labels", {}).get(OWNER) != self._owner:
            raise Refused(f"the job needs a Service {found['name']}, and there is another one of this name")
        await self._api.request("DELETE", path, {"preconditions": {"uid": found["uid"]}})

    async def cancel(self, handle: str) -> None:
        await self._delete(handle)

    async def _delete(self, handle: str, body: Document | None = None) -> None:
        path = await self._connect()
        gang = self._gangs.get(handle)
        if gang:
            gang.give_up()
        for target, query in (
            (f"{path}/configmaps/{handle}", {"propagationPolicy": "Background"}),
            # Not left to the garbage collector: it may be busy or away.
            (f"{path}/pods", {"labelSelector": f"{GANG}={handle},{OWNER}={self._owner}"}),
        ):
            try:
                await self._api.request("DELETE", target, body, query=query)
            except ApiError as error:
                if error.code != 404:
                    raise Unreachable(error.message) from None
        self._gangs.changed.set()

    async def forget(self, handle: str) -> None:
        gang = self._gangs.get(handle)
        if gang:
            gang.give_up()
            gang.forgotten = True
        self._cleanup.add(handle)

    async def _remove(self, handle: str) -> None:
        # Its runners have ended, or never began: nothing needs the grace time.
        await self._delete(handle, {"gracePeriodSeconds": 1})
        self._gangs.remove(handle)

    def is_placed(self, handle: str) -> bool:
        gang = self._gangs.get(handle)
        return gang is not None and gang.placed

    # What Kubernetes says.

    async def watch(self) -> AsyncGenerator[list[ClusterJob]]:
        path = await self._connect()
        selector = f"{OWNER}={self._owner}"
        watch = PodWatch(self._api, f"{path}/pods", selector, self._gangs)
        try:
            await watch.list()
            await self._find_unplaced(path, selector)
        except ApiError as error:
            raise Unreachable(error.message) from None
        follower = asyncio.get_running_loop().create_task(watch.follow())
        try:
            while True:
                self._gangs.changed.clear()
                self._cleanup.look_again()
                gangs = [gang for gang in self._gangs.all() if not gang.forgotten]
                await self._events.load(gang for gang in gangs if not gang.cancelled)
                yield [gang.job() for gang in gangs]
                changed = asyncio.ensure_future(self._gangs.changed.wait())
                done, _ = await asyncio.wait(
                    (changed, follower), timeout=_LIST_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                changed.cancel()
                if follower in done:
                    follower.result()
                await asyncio.sleep(PAUSE)
        except ApiError as error:
            raise Unreachable(error.message) from None
        finally:
            follower.cancel()
            with contextlib.suppress(asyncio.CancelledError, Unreachable, ApiError):
                await follower

    async def _find_unplaced(self, path: str, selector: str) -> None:
        """Finds the gangs that an earlier process has not placed, and goes on with them."""
        listed = await self._api.get(f"{path}/configmaps", LISTED_METADATA, labelSelector=selector)
        for item in listed.get("items") or ():
            if GANG not in item["metadata"]["labels"]:
                continue  # it has the runner
            gang = self._gangs.take_root(item)
            if not gang.placed and not gang.refused and gang.objects is None:
                await self._load_objects(gang)
                self._placement.begin(gang)

    async def _load_objects(self, gang: PlacedGang) -> None:
        try:
            found = await self._api.get(f"{self._path}/configmaps/{gang.handle}")
        except ApiError:
            return
        gang.objects = msgspec.json.decode(found["data"]["gang.json"], type=GangObjects)
        gang.owner = owner_reference(found)

    async def look(self, handle: str) -> ClusterJob | None:
        path = await self._connect()
        try:
            item = await self._root(path, handle)
            listed = await self._api.get(f"{path}/pods", labelSelector=f"{GANG}={handle}")
        except ApiError as error:
            raise Unreachable(error.message) from None
        pods = listed.get("items") or []
        known = self._gangs.get(handle)
        if item is None and not pods and (known is None or known.cancelled):
            return None
        gang = self._gangs.take_root(item) if item else self._gangs.add(handle, known.name if known else "")
        for pod in pods:
            self._gangs.take_pod(pod)
        there = {pod["metadata"]["name"] for pod in pods}
        for replica, pod in list(gang.pods.items()):
            if pod["metadata"]["name"] not in there:
                gang.drop(replica, pod)
        gang.placed = gang.placed or item is None
        await self._events.load([gang])
        return gang.job()

    async def _root(self, path: str, handle: str) -> Document | None:
        try:
            return await self._api.get(f"{path}/configmaps/{handle}", METADATA)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def last_words(self, handle: str, replica: ReplicaName) -> str:
        gang = self._gangs.get(handle)
        pod = gang and (gang.pods.get(replica) or gang.gone.get(replica))
        if not pod:
            return ""
        status = pod["status"]
        containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
        ended = [(one.get("state") or {}).get("terminated") or {} for one in containers]
        words = "\n".join(one["message"].strip() for one in ended if one.get("message"))
        return words[-_LONGEST_WORDS:]

    async def nodes(self) -> list[ClusterNode]:
        return await nodes.nodes(self._api, self._settings)

    def check(self, runner: RunnerCall) -> AsyncIterator[CheckResult]:
        return checks(self._api, self._settings, runner, self.name)


def _owner_id(directory: Path) -> str:
    """Tells the objects of this service from those of others in the same namespace."""
    path = directory / "owner"
    with contextlib.suppress(FileNotFoundError):
        found = path.read_text().strip()
        if found:
            return found
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(secrets.token_hex(8))
    temporary.rename(path)
    return path.read_text().strip()
