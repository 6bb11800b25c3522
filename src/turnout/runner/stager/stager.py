"""Reads transfer orders, runs them concurrently, and replies."""

import asyncio
import sys
from typing import TYPE_CHECKING

import msgspec

from turnout.child_processes.bootstrap import reply
from turnout.errors import TurnoutError
from turnout.runner.stager.budget import TransferBudget
from turnout.runner.stager.context import TransferContext
from turnout.runner.stager.fetch import Fetch
from turnout.runner.stager.messages import StagerSetup, TransferItem, TransferOrder, TransferReply
from turnout.runner.stager.progress import ProgressCounter
from turnout.runner.stager.push import Push
from turnout.runner.stager.retry import RetryPolicy
from turnout.storage.remote.settings import RemoteSettings
from turnout.storage.remote.store import open_store

if TYPE_CHECKING:
    from turnout.storage.remote.store import ObjectStore

_LONGEST_LINE = 64 << 20
_PROGRESS = 0.5
_FEW_STORES = 64

_order = msgspec.json.Decoder(TransferOrder)


class Stager:
    def __init__(self, setup: StagerSetup) -> None:
        self._setup = setup
        self._retries = RetryPolicy(setup.patience)
        self._budget = TransferBudget()
        self._stores: dict[bytes, ObjectStore] = {}
        self._running: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Runs until the input ends."""
        reader = asyncio.StreamReader(_LONGEST_LINE)
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while line := await reader.readline():
            self._take(_order.decode(line))
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _take(self, order: TransferOrder) -> None:
        if order.cancel:
            if task := self._running.get(order.id):
                task.cancel()
            return
        task = asyncio.create_task(self._run(order))
        self._running[order.id] = task
        task.add_done_callback(lambda _: self._running.pop(order.id, None))

    async def _run(self, order: TransferOrder) -> None:
        progress = ProgressCounter()
        reporting = asyncio.create_task(self._report_progress(order.id, progress))
        try:
            for item in order.items:
                await self._move(order, item, progress)
            message = TransferReply(order.id, done=progress.result())
        except asyncio.CancelledError:
            message = TransferReply(order.id, cancelled=True)
        except TurnoutError as error:
            message = TransferReply(order.id, failed=error.message)
        except Exception as error:  # noqa: BLE001 - a failed order must not end the others
            message = TransferReply(order.id, failed=f"{order.items[0].display_url}: {error!r}")
        finally:
            reporting.cancel()
        reply(message)

    async def _move(self, order: TransferOrder, item: TransferItem, progress: ProgressCounter) -> None:
        context = TransferContext(self._store(item.backing), self._budget, self._retries, progress)
        if order.do == "in":
            await Fetch(item, context).run()
        else:
            await Push(item, context, order.final).run()

    def _store(self, backing: RemoteSettings) -> "ObjectStore":
        """One for each backing, so that connections are reused."""
        known = msgspec.json.encode(backing)
        if known not in self._stores:
            while len(self._stores) >= _FEW_STORES:
                self._stores.pop(next(iter(self._stores)))
            self._stores[known] = open_store(backing, self._setup.patience / 2)
        return self._stores[known]

    async def _report_progress(self, order: int, progress: ProgressCounter) -> None:
        reported = progress.snapshot()
        while True:
            await asyncio.sleep(_PROGRESS)
            now = progress.snapshot()
            if now != reported:
                reported = now
                reply(TransferReply(order, progress=now))
