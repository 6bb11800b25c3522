"""The client of the stager, the process that copies data from and to remote object stores (`turnout.runner.stager`).

The stager starts when there is something to copy and ends after a while without work. If it is killed, the client sends
its requests again: the new stager resumes what is incomplete.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnout.child_processes.bootstrap import Identity, Reply
from turnout.child_processes.child import Child, ChildDied, ChildProgram, Closed
from turnout.engines.local.users.account import Account
from turnout.errors import TurnoutError

PROGRAM = ChildProgram("data transfer process", "turnout.runner.stager.__main__", cancels=True)
_IDLE_SECONDS = 30
_TRIES = 5

Item = Mapping[str, Any]


class TransferFailed(TurnoutError):
    """The message names the URL and the reason."""


class Transferred(msgspec.Struct):
    files: int = 0
    bytes: int = 0
    waiting: int = 0
    """Files that are being written, and are left for the next time."""
    warnings: list[str] = []
    """What was skipped, and why."""

    def plus(self, other: "Transferred") -> "Transferred":
        return Transferred(
            self.files + other.files,
            self.bytes + other.bytes,
            self.waiting + other.waiting,
            [*self.warnings, *other.warnings],
        )


class _StagerReply(Reply):
    progress: Any = None
    done: Transferred | None = None
    failed: str = ""
    cancelled: bool = False

    @property
    def last(self) -> bool:
        return self.progress is None


class StagerClients:
    """One stager for each user that jobs run as, because that user owns the files."""

    def __init__(self) -> None:
        self._clients: dict[Account, StagerClient] = {}
        self.moved = {"in": 0, "out": 0}
        """Bytes, since the service started."""

    def of(self, account: Account) -> "StagerClient":
        if account not in self._clients:
            self._clients[account] = StagerClient(account, self.moved)
        return self._clients[account]

    async def close(self) -> None:
        """Cancels running transfers. The next service requests them again."""
        await asyncio.gather(*(client.close() for client in self._clients.values()))


class StagerClient:
    def __init__(self, account: Account, moved: dict[str, int]) -> None:
        self._moved = moved
        identity = Identity(account.uid, account.gid, account.groups) if account.other else None
        self._child = Child(PROGRAM, _StagerReply, identity=identity, idle=_IDLE_SECONDS)

    async def fetch(self, items: Sequence[Item]) -> Transferred:
        """Raises TransferFailed."""
        return await self._request({"do": "in", "items": items})

    async def upload(self, items: Sequence[Item], *, final: bool) -> Transferred:
        """Uploads changed files. Files that are being written wait for `final`. Raises TransferFailed."""
        return await self._request({"do": "out", "items": items, "final": final})

    async def close(self) -> None:
        await self._child.close()

    async def _request(self, request: dict[str, Any]) -> Transferred:
        try:
            reply = await self._child.request(request, _TRIES)
        except Closed:
            raise asyncio.CancelledError from None  # the job has not failed
        except ChildDied as error:
            raise TransferFailed(f"{error.message}, {_TRIES} times; see the log of the service") from None
        if reply.done is None:
            raise TransferFailed(reply.failed or "the transfer was cancelled")
        self._moved[request["do"]] += reply.done.bytes
        return reply.done
