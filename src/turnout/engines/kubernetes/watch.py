"""Keeps the pods of this service as Kubernetes describes them: a list, then a watch, and a list again after a break."""

from turnout.engines.kubernetes.api import Api, ApiError
from turnout.engines.kubernetes.gangs import Document, Gangs

WATCH_SECONDS = 60
"""After which the server ends a watch, and a new one goes on from there: so a dead connection is noticed soon."""
_GONE = 410


class PodWatch:
    def __init__(self, api: Api, path: str, selector: str, gangs: Gangs) -> None:
        self._api = api
        self._path = path
        self._selector = selector
        self._gangs = gangs
        self._version = ""

    async def list(self) -> None:
        """Raises ApiError or Unreachable."""
        listed = await self._api.get(self._path, labelSelector=self._selector)
        self._version = listed["metadata"]["resourceVersion"]
        pods: list[Document] = listed.get("items") or []
        for pod in pods:
            self._gangs.take_pod(pod)
        there = {pod["metadata"]["uid"] for pod in pods}
        for gang in self._gangs.all():
            for replica, pod in list(gang.pods.items()):
                if pod["metadata"]["uid"] not in there and await self._is_gone(pod):
                    gang.drop(replica, pod)
        self._gangs.changed.set()

    async def _is_gone(self, pod: Document) -> bool:
        """A list may be incomplete, so a pod that is missing in it is looked up."""
        try:
            found = await self._api.get(f"{self._path}/{pod['metadata']['name']}")
        except ApiError as error:
            if error.code != 404:
                raise
            return True
        return found["metadata"]["uid"] != pod["metadata"]["uid"]

    async def follow(self) -> None:
        """For ever. Raises ApiError or Unreachable."""
        while True:
            try:
                await self._follow_once()
            except ApiError as error:
                if error.code != _GONE:
                    raise
                await self.list()

    async def _follow_once(self) -> None:
        events = self._api.watch(
            self._path,
            labelSelector=self._selector,
            resourceVersion=self._version,
            watch="1",
            allowWatchBookmarks="true",
            timeoutSeconds=str(WATCH_SECONDS),
        )
        async for event in events:
            item = event["object"]
            match event["type"]:
                case "ADDED" | "MODIFIED":
                    self._gangs.take_pod(item)
                case "DELETED":
                    self._gangs.drop_pod(item)
                case _:
                    pass  # a bookmark, which has a version only
            self._version = item["metadata"]["resourceVersion"]
