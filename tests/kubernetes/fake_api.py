"""An API server in memory that stores objects, lists and watches them. It runs nothing: tests say what becomes of pods.

Its answers have the form of the real one; the slow tests run against that.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Document = dict[str, Any]
KINDS = {
    "pods": "Pod",
    "configmaps": "ConfigMap",
    "secrets": "Secret",
    "services": "Service",
    "events": "Event",
}


class FakeApi:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Document]] = {}
        """By path of the collection, then by name."""
        self.groups = ["apps"]
        self.history: list[tuple[int, str, str, Document]] = []
        """Version, path of the collection, type and object: what watches show."""
        self.oldest = 0
        """Watches from before get 410."""
        self.refuses: dict[str, Document] = {}
        """By the kind: the answer to each POST."""
        self.refuses_lists: dict[str, Document] = {}
        self.loses_answers = 0
        """So many requests are done, but not answered."""
        self.hides: set[str] = set()
        """Names that lists do not contain."""
        self.keeps: set[str] = set()
        """Names of pods that stay after they were deleted, as those of a node that does not answer."""
        self._versions = itertools.count(1)
        self._version = 0
        self._changed = asyncio.Event()
        self._connections: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        for writer in self._connections:
            writer.transport.abort()

    def all(self, kind: str) -> list[Document]:
        return [
            item
            for path, found in self.objects.items()
            if path.endswith(f"/{kind}")
            for item in found.values()
        ]

    def update(self, pod: Document, status: Document | None = None, node: str = "", **metadata: Any) -> None:
        """What a scheduler or kubelet does."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        stored = self.objects[path][pod["metadata"]["name"]]
        stored["status"] = status or stored.get("status") or {}
        stored["metadata"] |= metadata
        if node:
            stored["spec"]["nodeName"] = node
        self._note(path, "MODIFIED", stored)

    def remove(self, path: str, name: str) -> None:
        gone = self.objects.get(path, {}).pop(name, None)
        if gone is None:
            return
        self._note(path, "DELETED", gone)
        for other, found in list(self.objects.items()):
            for item in list(found.values()):
                owners = item["metadata"].get("ownerReferences") or ()
                if any(owner["uid"] == gone["metadata"]["uid"] for owner in owners):
                    self.remove(other, item["metadata"]["name"])

    def forget_history(self) -> None:
        """Watches that are there now end, and cannot go on from where they were."""
        self.oldest = next(self._versions)
        self.cut()

    def _note(self, path: str, kind: str, item: Document) -> None:
        self._version = next(self._versions)
        item["metadata"]["resourceVersion"] = str(self._version)
        self.history.append((self._version, path, kind, json.loads(json.dumps(item))))
        self._changed.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                size = next(
                    (int(one.split()[1]) for one in head if one.lower().startswith("content-length")), 0
                )
                body = json.loads(await reader.readexactly(size) or b"null")
                method, target, _ = head[0].split()
                url = urlsplit(target)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                if "watch" in query:
                    await self._watch(url.path, query, writer)
                    return
                code, answer = self._answer(method, url.path, query, body)
                if self.loses_answers and method == "POST":
                    self.loses_answers -= 1
                    return
                data = json.dumps(answer).encode()
                writer.write(f"HTTP/1.1 {code} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    def _answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Document]:
        if path == "/apis":
            return 200, {"groups": [{"name": name} for name in self.groups]}
        above, _, name = path.rpartition("/")
        if method == "GET" and name in self.refuses_lists:
            return self.refuses_lists[name]["code"], self.refuses_lists[name]
        if method == "POST":
            return self._create(path, body)
        if name in KINDS and method == "GET":
            items = [one for one in self._selected(path, query) if one["metadata"]["name"] not in self.hides]
            return 200, {"metadata": {"resourceVersion": str(self._version)}, "items": items}
        if name in KINDS and method == "DELETE":
            for item in list(self._selected(path, query)):
                self.remove(path, item["metadata"]["name"])
            return 200, {}
        item = self.objects.get(above, {}).get(name)
        if item is None:
            return 404, _status(404, "NotFound", f'{above.rpartition("/")[2]} "{name}" not found')
        if method == "PATCH":
            item["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
            self._note(above, "MODIFIED", item)
        if method == "DELETE" and name in self.keeps:
            self.update(item, deletionTimestamp="2026-01-01T00:00:00Z")
        elif method == "DELETE":
            self.remove(above, name)
        return 200, item

    def _create(self, path: str, item: Document) -> tuple[int, Document]:
        kind, name = path.rpartition("/")[2], item["metadata"]["name"]
        if kind in self.refuses:
            return self.refuses[kind]["code"], self.refuses[kind]
        if name in self.objects.get(path, {}):
            return 409, _status(409, "AlreadyExists", f'{kind} "{name}" already exists')
        item["metadata"] |= {
            "uid": f"uid-{next(self._versions)}", "namespace": path.split("/")[-2],
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        if kind == "pods":
            item["status"] = {"phase": "Pending"}
        self.objects.setdefault(path, {})[name] = item
        self._note(path, "ADDED", item)
        return 201, item

    def _selected(self, path: str, query: dict[str, str]) -> Iterator[Document]:
        for item in self.objects.get(path, {}).values():
            if _matches(item, query):
                yield item

    async def _watch(self, path: str, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        seen = int(query["resourceVersion"])
        if seen < self.oldest:
            status = _status(410, "Expired", "too old resource version")
            _chunk(writer, {"type": "ERROR", "object": status})
            writer.write(b"0\r\n\r\n")
            return
        while not writer.is_closing():
            self._changed.clear()
            for version, where, kind, item in self.history:
                if version > seen and where == path and _matches(item, query):
                    _chunk(writer, {"type": kind, "object": item})
            seen = self._version
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                # Another watch may have taken the event.
                await asyncio.wait_for(self._changed.wait(), 0.1)


def _matches(item: Document, query: dict[str, str]) -> bool:
    wanted = dict(one.split("=") for one in query.get("labelSelector", "").split(",") if one)
    return wanted.items() <= (item["metadata"].get("labels") or {}).items()


def _chunk(writer: asyncio.StreamWriter, document: Document) -> None:
    data = json.dumps(document).encode() + b"\n"
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _status(code: int, reason: str, message: str) -> Document:
    return {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}
