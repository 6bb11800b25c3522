"""Delivers messages to webhooks, at least once each, signed as https://www.standardwebhooks.com says.

Messages wait in the store, so a restart loses none, and those for an unreachable receiver do not fill the memory.
"""

import asyncio
import base64
import hashlib
import hmac
import http.client
import logging
import random
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from turnout import __version__
from turnout.errors import TurnoutError
from turnout.job import Delivery
from turnout.pools import ThreadPool
from turnout.store import Store
from turnout.store.deliveries import DeliveryCounts
from turnout.webhooks import Webhook

log = logging.getLogger(__name__)

_AT_ONCE = 50
_SECONDS = 10.0
"""The time limit of each step of a request."""
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 900.0
_HOUR, _DAY = 3600, 86_400
_SECOND = 1_000_000_000
_FAILURES = 20


class HookStatus(NamedTuple):
    name: str
    address: str
    """The URL without its path, which may be a secret."""
    format: str
    counts: DeliveryCounts
    trouble: str
    """Why its last message was not accepted; empty if it was."""
    failures: list[Delivery]


class _Refused(Exception):
    """The receiver answered with a status that is not 2xx."""


class Webhooks:
    def __init__(self, store: Store, hooks: Mapping[str, Webhook]) -> None:
        self._store = store
        self._deliveries = store.deliveries
        self._hooks = hooks
        self._pool = ThreadPool("webhooks", threads=4, per_project=1)
        self._woken = {name: asyncio.Event() for name in hooks}
        self._troubles = dict.fromkeys(hooks, "")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._keep(name, hook), name=f"webhook {name}")
            for name, hook in self._hooks.items()
        ]
        self._tasks.append(asyncio.create_task(self._give_up_removed(), name="removed webhooks"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self, names: set[str]) -> None:
        """Call it when there are new messages for these webhooks."""
        for name in names:
            self._woken[name].set()

    @property
    def names(self) -> list[str]:
        return list(self._hooks)

    def troubles(self) -> dict[str, str]:
        """For each webhook that does not accept messages, why."""
        return {name: why for name, why in self._troubles.items() if why}

    async def status(self) -> list[HookStatus]:
        return [
            HookStatus(
                name,
                _address(hook.url),
                hook.format,
                await self._deliveries.counts(name),
                self._troubles[name],
                await self._deliveries.failures(name, _FAILURES),
            )
            for name, hook in self._hooks.items()
        ]

    async def _keep(self, name: str, hook: Webhook) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                away = await self._deliver_due(name, hook)
            except TurnoutError as error:  # the store does not answer
                log.warning("webhook %s: %s", name, error.message)
                away = True
            except Exception:  # whatever a receiver answers, the task goes on
                log.exception("webhook %s", name)
                away = True
            if away:
                # While a receiver cannot be reached, it is tried with one message, not with each.
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                pause = _FIRST_PAUSE
                await self._wait(name)

    async def _give_up_removed(self) -> None:
        """A webhook that is not in the settings any more may come back for as long as a receiver may be away."""
        while True:
            try:
                for name in set(await self._deliveries.hooks()) - set(self._hooks):
                    now = time.time_ns()
                    await self._deliveries.give_up(name, now - _DAY * _SECOND, now)
            except TurnoutError as error:  # the store does not answer
                log.warning("messages of removed webhooks: %s", error.message)
            await asyncio.sleep(_HOUR)

    async def _wait(self, name: str) -> None:
        """Waits until a message is due or a new one arrives."""
        woken = self._woken[name]
        woken.clear()
        at = await self._deliveries.next_at(name)
        try:
            async with asyncio.timeout(None if at is None else max(0.0, at / _SECOND - time.time())):
                await woken.wait()
        except TimeoutError:
            return

    async def _deliver_due(self, name: str, hook: Webhook) -> bool:
        """Returns whether the receiver cannot be reached."""
        while due := await self._deliveries.due(name, time.time_ns(), _AT_ONCE):
            accepted: list[int] = []
            try:
                for delivery in due:
                    try:
                        await self._pool.run(name, send, hook, delivery)
                    except _Refused as error:
                        await self._failed(delivery, str(error))
                    except (OSError, http.client.HTTPException) as error:
                        await self._failed(delivery, _reason(error))
                        return True
                    else:
                        self._troubles[name] = ""
                        accepted.append(delivery.number)
            finally:
                await self._deliveries.delivered(accepted)
        return False

    async def _failed(self, delivery: Delivery, why: str) -> None:
        self._troubles[delivery.hook] = why
        pause = min(_FIRST_PAUSE * 2 ** min(delivery.attempts, 20), _LONGEST_PAUSE) * random.uniform(0.8, 1.2)
        now = time.time_ns()
        await self._deliveries.failed(delivery.number, now + int(pause * _SECOND), why)
        await self._deliveries.give_up(delivery.hook, now - _DAY * _SECOND, now)


def send(hook: Webhook, delivery: Delivery) -> None:
    """Blocks. Does not follow redirects. Raises _Refused, OSError or HTTPException."""
    parts = urlsplit(hook.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_SECONDS)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, delivery.body, headers(hook, delivery, int(time.time())))
        reply = connection.getresponse()
        if not 200 <= reply.status < 300:
            raise _Refused(f"it answered {reply.status} {reply.reason}"[:200])
    finally:
        connection.close()


def headers(hook: Webhook, delivery: Delivery, now: int) -> dict[str, str]:
    found = {
        "Content-Type": "application/json",
        "User-Agent": f"turnout/{__version__}",
        "webhook-id": delivery.id,
        "webhook-timestamp": str(now),
    }
    if hook.secret:
        signed = b".".join((delivery.id.encode(), str(now).encode(), delivery.body))
        digest = hmac.new(hook.key, signed, hashlib.sha256).digest()
        found["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return found


def _address(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return f"it cannot be reached: {text}"[:200]
