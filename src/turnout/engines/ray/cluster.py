"""A cluster that Ray runs: each gang is a placement group with an actor for each replica, found by its name."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from turnout.engines.ray.bridge import SECONDS, Bridge
from turnout.engines.ray.check import checks
from turnout.engines.ray.requests import submission
from turnout.engines.ray.settings import RaySettings
from turnout.engines.ray.states import Cluster, cluster_job, cluster_node, last_words
from turnout.engines.remote import CheckResult, ClusterJob, ClusterNode, Gang, Phase, RunnerCall
from turnout.job import Launch, ReplicaName

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
"""Seconds between two lists: the first after a submit, then twice as long each time. An end makes the next one due."""
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class RayCluster:
    kind = "ray"

    def __init__(self, name: str, settings: RaySettings, seconds: float = SECONDS) -> None:
        self.name = name
        self._settings = settings
        self._changed = asyncio.Event()
        self._bridge = Bridge(settings, self._changed.set, seconds)
        self._pause = FIRST_PAUSE

    async def open(self) -> None:
        await self._bridge.open()

    async def close(self) -> None:
        await self._bridge.close()

    def refuses(self, launch: Launch) -> str:
        for role in launch.spec.roles:
            if not _ROLE.fullmatch(role.name):
                return f"{role.name!r} cannot be the name of a role on cluster {self.name}"
        return ""

    async def submit(self, gang: Gang) -> str:
        handle = await self._bridge.ask("submit", **submission(gang, self._settings))
        self._pause = FIRST_PAUSE
        self._changed.set()
        return handle

    async def cancel(self, handle: str) -> None:
        await self._bridge.ask("cancel", handle=handle)

    async def forget(self, handle: str) -> None:
        """The bridge removes a gang when its last runner has ended."""

    def is_placed(self, handle: str) -> bool:
        return True  # its actors start when the placement group has all its places

    async def watch(self) -> AsyncGenerator[list[ClusterJob]]:
        while True:
            self._changed.clear()
            gangs = await self._bridge.ask("list")
            yield await self._described(gangs)
            await self._next_list()

    async def _next_list(self) -> None:
        """Several ends in a row are one list."""
        end = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        try:
            async with asyncio.timeout(self._pause):
                await self._changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(min(0.2, max(0.0, end - time.monotonic())))

    async def look(self, handle: str) -> ClusterJob | None:
        gang = await self._bridge.ask("look", handle=handle)
        return (await self._described([gang]))[0] if gang else None

    async def _described(self, gangs: list[dict[str, Any]]) -> list[ClusterJob]:
        jobs = [cluster_job(gang) for gang in gangs]
        if not any(job.phase is Phase.PENDING for job in jobs):
            return jobs
        nodes = [node["resources"] for node in await self._bridge.ask("nodes")]
        cluster = Cluster(nodes, await self._bridge.ask("available"))
        return [cluster_job(gang, cluster) for gang in gangs]

    async def last_words(self, handle: str, replica: ReplicaName) -> str:
        gang = await self._bridge.ask("look", handle=handle)
        return last_words(gang, str(replica)) if gang else ""

    async def nodes(self) -> list[ClusterNode]:
        found = await self._bridge.ask("nodes")
        return [cluster_node(node, self._settings.accelerator) for node in found]

    def check(self, runner: RunnerCall) -> AsyncIterator[CheckResult]:
        return checks(self._bridge, self._settings, runner)
