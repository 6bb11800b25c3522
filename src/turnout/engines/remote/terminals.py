"""Shells beside programs on nodes: the runner carries the bytes by calls of its own."""

import asyncio
import base64
import secrets
from typing import Any

from turnout.job import Attempt, ReplicaName, Size

_MOST_OUTPUT = 1 << 20
"""Bytes that may wait for the reader. The runner's next call waits until there is room."""


class RemoteTerminal:
    def __init__(self, attempt: Attempt, replica: ReplicaName) -> None:
        self.id = secrets.token_hex(8)
        self.owner = (attempt, replica)
        self._output = bytearray()
        self._received = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._events: list[dict[str, Any]] = []
        self._taken = 0
        self._new_event = asyncio.Event()
        self._code: int | None = None
        self._over = False

    # The reader's side.

    async def read(self) -> bytes:
        while not self._output and not self._over:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._output)
        self._output.clear()
        self._room.set()
        return data

    async def write(self, data: bytes) -> None:
        self._add({"data": base64.b64encode(data).decode()})

    def resize(self, size: Size) -> None:
        self._add({"columns": size.columns, "rows": size.rows})

    async def code(self) -> int | None:
        return self._code

    def close(self) -> None:
        self._add({"close": True})
        self.end(None)

    # The runner's side.

    async def put(self, data: bytes, offset: int) -> None:
        """`offset`: where the bytes begin in the whole output. A repeated call adds nothing."""
        await self._room.wait()
        data = data[max(0, self._received - offset) :]
        self._received += len(data)
        self._output += data
        if len(self._output) > _MOST_OUTPUT:
            self._room.clear()
        self._changed.set()

    def end(self, code: int | None) -> None:
        if not self._over:
            self._over, self._code = True, code
            self._changed.set()
            self._room.set()

    async def events(self, after: int, seconds: float) -> tuple[list[dict[str, Any]], int]:
        """What the reader sent after the first `after` events. Waits for the next one."""
        if self._taken + len(self._events) <= after:
            self._new_event.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._new_event.wait()
            except TimeoutError:
                return [], after
        skip = max(0, after - self._taken)
        del self._events[:skip]
        self._taken += skip
        return list(self._events), self._taken + len(self._events)

    def _add(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        self._new_event.set()


class RemoteTerminals:
    def __init__(self) -> None:
        self._open: dict[str, RemoteTerminal] = {}

    def open(self, attempt: Attempt, replica: ReplicaName) -> RemoteTerminal:
        terminal = RemoteTerminal(attempt, replica)
        self._open[terminal.id] = terminal
        return terminal

    def find(self, attempt: Attempt, replica: ReplicaName, terminal: str) -> RemoteTerminal | None:
        """Only for the runner of that replica."""
        found = self._open.get(terminal)
        return found if found and found.owner == (attempt, replica) else None

    def ended(self, terminal: RemoteTerminal, code: int | None) -> None:
        terminal.end(code)
        self._open.pop(terminal.id, None)

    def end_all(self, attempt: Attempt, replica: ReplicaName) -> None:
        """The replica has ended, and its shells with it."""
        for terminal in [one for one in self._open.values() if one.owner == (attempt, replica)]:
            self.ended(terminal, None)

    def close(self) -> None:
        for terminal in list(self._open.values()):
            self.ended(terminal, None)
