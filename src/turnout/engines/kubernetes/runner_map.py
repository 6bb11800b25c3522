"""The ConfigMap that has the runner: one for each version of the runner, shared by all pods of this service.

A runner has a few hundred kilobytes. With one ConfigMap for each gang, runners would take most of the API server's
space, and each node would fetch every one of them.
"""

import asyncio
import base64
import contextlib
import hashlib
import io
import marshal
import struct
import time
import zipfile
from functools import cache
from importlib.util import MAGIC_NUMBER, source_hash
from typing import Any

from turnout import pools
from turnout.engines.kubernetes.api import LISTED_METADATA, METADATA, Api, ApiError
from turnout.engines.kubernetes.objects import MANAGED_BY, OWNER, PART, RUNNER_MAP

Document = dict[str, Any]

_SEEN_SECONDS = 10.0
"""How long it is taken for granted. Somebody may delete it; pods that are made then wait until it is there again."""
_UNCHECKED = 0b01
"""Flags of a .pyc file: it has a hash of its source, which is not checked."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


class RunnerMap:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._turn = asyncio.Lock()
        self._seen: dict[str, float] = {}
        """By name, on the monotonic clock."""

    async def ensure(self, namespace: str, archive: str, owner: str) -> str:
        """Its name, once it is there. `namespace`: its path; `archive`: the file of the runner.

        Raises ApiError or Unreachable.
        """
        document = await pools.disk.run(pools.OWN, runner_map, archive, owner)
        name: str = document["metadata"]["name"]
        async with self._turn:
            if time.monotonic() - self._seen.get(name, float("-inf")) > _SEEN_SECONDS:
                path = f"{namespace}/configmaps"
                if not await self._is_there(path, name):
                    await self._create(path, document)
                    await self._remove_others(path, name, owner)
                self._seen[name] = time.monotonic()
        return name

    async def _is_there(self, path: str, name: str) -> bool:
        try:
            found = await self._api.get(f"{path}/{name}", METADATA)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return not found["metadata"].get("deletionTimestamp")

    async def _create(self, path: str, document: Document) -> None:
        try:
            await self._api.request("POST", path, document, accept=METADATA)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    async def _remove_others(self, path: str, name: str, owner: str) -> None:
        """Removes those of earlier versions, unless a gang has one: its pods may not be made yet."""
        listed = await self._api.get(path, LISTED_METADATA, labelSelector=f"{OWNER}={owner}")
        found = [item["metadata"] for item in listed.get("items") or ()]
        used = {name, *(one["labels"].get(RUNNER_MAP) for one in found)}
        for one in found:
            if PART in one["labels"] and one["name"] not in used:
                with contextlib.suppress(ApiError):
                    await self._api.request("DELETE", f"{path}/{one['name']}")


@cache
def runner_map(archive: str, owner: str) -> Document:
    """`owner`: names this service."""
    data = packed(archive)
    return {
        "metadata": {
            "name": f"turnout-runner-{owner}-{hashlib.sha256(data).hexdigest()[:10]}",
            "labels": {**MANAGED_BY, OWNER: owner, PART: "runner"},
        },
        # Nodes need not watch it.
        "immutable": True,
        "binaryData": {"runner.pyz": base64.b64encode(data).decode()},
    }


def packed(archive: str) -> bytes:
    """The runner for pods. The same archive gives the same bytes.

    Its modules are also there as compiled by this Python. In an image with the same version, that halves the runner's
    start; any other version takes the sources. They are what is read the most, so only the sources are compressed.
    """
    output = io.BytesIO()
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(output, "w") as target:
        for info in source.infolist():
            text = source.read(info)
            target.writestr(_entry(info.filename), text, zipfile.ZIP_DEFLATED)
            if info.filename.endswith(".py"):
                target.writestr(_entry(f"{info.filename}c"), _compiled(text, info.filename))
    return output.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = 0o644 << 16
    return entry


def _compiled(text: bytes, name: str) -> bytes:
    """A .pyc file that is not checked against its source."""
    code = marshal.dumps(compile(text, name, "exec", dont_inherit=True))
    return MAGIC_NUMBER + struct.pack("<I", _UNCHECKED) + source_hash(text) + code
