"""Makes the pods of a gang. Where no scheduler places gangs as a whole, it does so itself.

All pods are made, and if they do not all get a node within `gang_seconds`, all are deleted and the gang goes to the end
of the queue. Only one gang at a time has some of its pods placed, so no two of them keep each other from starting.
Runners of such a gang have to wait until all are placed, so nothing is lost when its pods are deleted.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from turnout.engines import Unreachable
from turnout.engines.kubernetes.api import MERGE_PATCH, METADATA, Api, ApiError
from turnout.engines.kubernetes.gangs import TURN, PlacedGang
from turnout.engines.kubernetes.objects import PLACED, REFUSED, GangObjects, Member

_log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
_AT_ONCE = 8
"""The most requests at a time."""
_LOOK_SECONDS = 5.0
GOING_SECONDS = 30.0
"""How long to wait until a deleted pod is gone. If its node does not answer, it stays until the node is back."""


class Later(Exception):
    """The gang cannot be placed now; the text says why."""


class Placement:
    def __init__(self, api: Api, gang_seconds: float, changed: Callable[[], None]) -> None:
        self._api = api
        self._gang_seconds = gang_seconds
        self._changed = changed
        self._turn = asyncio.Lock()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.path = ""
        """Of the namespace."""
        self.whole = False
        """A scheduler of the cluster places gangs as a whole."""

    def begin(self, gang: PlacedGang) -> None:
        if gang.handle not in self._tasks and gang.objects and not gang.placed and not gang.refused:
            task = asyncio.get_running_loop().create_task(self._place(gang, gang.objects))
            self._tasks[gang.handle] = task
            task.add_done_callback(lambda _: self._tasks.pop(gang.handle, None))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _place(self, gang: PlacedGang, objects: GangObjects) -> None:
        alone = len(objects.members) > 1 and not self.whole
        pause = FIRST_PAUSE
        while not gang.cancelled:
            try:
                if alone:
                    self._waits(gang, TURN if self._turn.locked() else "")
                    async with self._turn:
                        self._waits(gang, "")
                        await self._try(gang, objects, wait=True)
                else:
                    await self._try(gang, objects, wait=False)
                if gang.placed:  # the next gang has its turn meanwhile
                    await self._annotate(gang, PLACED, "true")
                return
            except Unreachable as error:
                self._waits(gang, f"Kubernetes: {error.message}")
            except Later as error:
                self._waits(gang, str(error))
            except ApiError as error:
                await self._refuse(gang, objects, f"Kubernetes refused its pod: {error.message}")
                return
            except Exception:  # noqa: BLE001 (nobody awaits this task: the job has to show that something is wrong)
                _log.exception("the pods of %s cannot be made", gang.name)
                self._waits(gang, "Kubernetes: its pods could not be made, see the log of the service")
            # Something of ours may end meanwhile, but also pods of others: so it is tried again anyway.
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _waits(self, gang: PlacedGang, why: str) -> None:
        if gang.waiting != why:
            gang.waiting = why
            self._changed()

    async def _try(self, gang: PlacedGang, objects: GangObjects, wait: bool) -> None:
        """Returns when the gang is placed or cancelled. Raises Later once its pods are deleted."""
        if objects.group:
            await self._create(f"/apis/{self._group_path(objects)}", objects.group, gang)
        try:
            await self._gather(self._create_pod(gang, objects, one) for one in objects.all_members())
            if wait:
                await self._all_have_nodes(gang, objects)
        except (Later, ApiError):
            await self._take_back(gang, objects)
            raise
        if gang.cancelled:
            return
        gang.placed = True
        self._waits(gang, "")
        self._changed()

    def _group_path(self, objects: GangObjects) -> str:
        group, _, resource = objects.group_path.rpartition("/")
        return f"{group}/{self.path.removeprefix('/api/v1/')}/{resource}"

    async def _create_pod(self, gang: PlacedGang, objects: GangObjects, member: Member) -> None:
        async with self._slots:
            while not gang.cancelled:
                try:
                    made = await self._api.request(
                        "POST", f"{self.path}/pods", objects.pod(member, gang.owner)
                    )
                    gang.take_made(made)
                    return
                except ApiError as error:
                    if error.reason == "AlreadyExists":
                        if await self._exists(gang, member):
                            return
                        continue
                    if "exceeded quota" in error.message:
                        raise Later(
                            f"Kubernetes: the quota of the namespace is used up: {error.message}"
                        ) from None
                    if _is_missing_right(error):
                        raise Later(f"Kubernetes: a right is missing: {error.message}") from None
                    raise

    async def _exists(self, gang: PlacedGang, member: Member) -> bool:
        """False: the pod was being deleted, and is gone now. Raises Later if it stays."""
        deadline = time.monotonic() + GOING_SECONDS
        while not gang.cancelled:
            try:
                pod = await self._api.get(f"{self.path}/pods/{member.pod}")
            except ApiError as error:
                if error.code != 404:
                    raise
                return False
            if not pod["metadata"].get("deletionTimestamp"):
                gang.take_made(pod)
                return True
            if time.monotonic() > deadline:
                raise Later(f"Kubernetes: the pod {member.pod} was deleted and is still there")
            await asyncio.sleep(1)
        return False

    async def _all_have_nodes(self, gang: PlacedGang, objects: GangObjects) -> None:
        deadline = time.monotonic() + self._gang_seconds
        while not gang.cancelled:
            gang.changed.clear()
            states = gang.made_states()
            with_node = sum(bool(state.node) for state in states.values())
            if with_node == len(objects.members):
                return
            self._changed()
            left = deadline - time.monotonic()
            if left <= 0:
                first = next((state.why for state in states.values() if not state.node), "")
                raise Later(
                    f"{first or 'Kubernetes: pods are missing'} ({with_node} of {len(objects.members)} replicas had a "
                    f"node for {self._gang_seconds:g} s, and gave it back)"
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, _LOOK_SECONDS)):
                    await gang.changed.wait()

    async def _take_back(self, gang: PlacedGang, objects: GangObjects) -> None:
        """Deletes all pods, and waits until their places are free."""
        await self._gather(self._delete_pod(one) for one in objects.all_members())
        await self._gather(self._is_gone(one) for one in objects.all_members())
        gang.clear()
        self._changed()

    async def _delete_pod(self, member: Member) -> None:
        async with self._slots:
            with contextlib.suppress(ApiError):
                # Its runner has claimed nothing, so it needs no time.
                await self._api.request("DELETE", f"{self.path}/pods/{member.pod}", {"gracePeriodSeconds": 1})

    async def _is_gone(self, member: Member) -> None:
        deadline = time.monotonic() + GOING_SECONDS
        while time.monotonic() < deadline:
            try:
                async with self._slots:
                    await self._api.get(f"{self.path}/pods/{member.pod}")
            except ApiError:
                return
            await asyncio.sleep(0.5)

    async def _refuse(self, gang: PlacedGang, objects: GangObjects, why: str) -> None:
        gang.refused = why
        self._changed()
        with contextlib.suppress(Unreachable, ApiError):
            await self._annotate(gang, REFUSED, why)

    async def _annotate(self, gang: PlacedGang, name: str, value: str) -> None:
        """Writes an annotation of the gang's ConfigMap, where the next process finds it."""
        patch = {"metadata": {"annotations": {name: value}}}
        with contextlib.suppress(ApiError):  # it was deleted meanwhile
            path = f"{self.path}/configmaps/{gang.handle}"
            await self._api.request("PATCH", path, patch, content_type=MERGE_PATCH, accept=METADATA)

    async def _create(self, path: str, document: dict[str, Any], gang: PlacedGang) -> None:
        document = {**document, "metadata": {**document["metadata"], "ownerReferences": [gang.owner]}}
        try:
            await self._api.request("POST", path, document)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    async def _gather(self, work: "Any") -> None:
        """Waits for all of them, even if some fail."""
        coroutines: list[Coroutine[Any, Any, None]] = list(work)
        results = await asyncio.gather(*coroutines, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


def _is_missing_right(error: ApiError) -> bool:
    """Not one of admission, which forbids things too."""
    return error.code == 403 and " cannot " in error.message and " in API group " in error.message
