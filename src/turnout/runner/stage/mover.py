"""Takes orders, runs them at the same time, and answers."""

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from turnout.errors import TurnoutError
from turnout.runner.stage.again import Patience
from turnout.runner.stage.fetch import Fetch
from turnout.runner.stage.orders import Answer, Hello, Item, Order
from turnout.runner.stage.push import Push
from turnout.runner.stage.room import Room
from turnout.runner.stage.tally import Tally
from turnout.storage.remote import Backing, open_store

if TYPE_CHECKING:
    from turnout.storage.remote import Store

_LONGEST_LINE = 64 << 20
_PROGRESS = 0.5
_FEW_STORES = 64

_order = msgspec.json.Decoder(Order)


class Mover:
    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._patience = Patience(hello.patience)
        self._room = Room()
        self._stores: dict[bytes, Store] = {}
        self._running: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Until there is nobody who could give orders."""
        reader = asyncio.StreamReader(_LONGEST_LINE)
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while line := await reader.readline():
            self._take(_order.decode(line))
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _take(self, order: Order) -> None:
        if order.cancel:
            if task := self._running.get(order.id):
                task.cancel()
            return
        task = asyncio.create_task(self._run(order))
        self._running[order.id] = task
        task.add_done_callback(lambda _: self._running.pop(order.id, None))

    async def _run(self, order: Order) -> None:
        tally = Tally()
        telling = asyncio.create_task(self._tell_progress(order.id, tally))
        try:
            for item in order.items:
                await self._move(order, item, tally)
            answer = Answer(order.id, done=tally.done())
        except asyncio.CancelledError:
            answer = Answer(order.id, cancelled=True)
        except TurnoutError as error:
            answer = Answer(order.id, failed=error.message, reason=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - one order's trouble is not the others'
            answer = Answer(order.id, failed=f"{order.items[0].called}: {error!r}", reason="Bug")
        finally:
            telling.cancel()
        self._answer(answer)

    async def _move(self, order: Order, item: Item, tally: Tally) -> None:
        store = self._store(item.backing)
        if order.do == "in":
            await Fetch(item, store, self._room, self._patience, tally).run()
        else:
            await Push(item, store, self._room, self._patience, tally, order.final).run()

    def _store(self, backing: Backing) -> "Store":
        """One for each backing: its connections are used again."""
        known = msgspec.json.encode(backing)
        if known not in self._stores:
            while len(self._stores) >= _FEW_STORES:
                self._stores.pop(next(iter(self._stores)))
            self._stores[known] = open_store(backing, self._hello.patience / 2)
        return self._stores[known]

    async def _tell_progress(self, order: int, tally: Tally) -> None:
        told = tally.progress()
        while True:
            await asyncio.sleep(_PROGRESS)
            now = tally.progress()
            if now != told:
                told = now
                self._answer(Answer(order, progress=now))

    @staticmethod
    def _answer(answer: Answer) -> None:
        """Answers are few and short. Who does not listen any more has closed our input too, which ends us."""
        data = msgspec.json.encode(answer) + b"\n"
        with suppress(BrokenPipeError):
            while data:
                data = data[os.write(sys.stdout.fileno(), data) :]
