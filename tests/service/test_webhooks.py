"""Messages in the store: a message is given up after a day, and a receiver that is away gets one attempt for all."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.store.samples import creation, job
from turnout import webhooks
from turnout.errors import Misconfigured
from turnout.job import Delivery
from turnout.service.webhooks import Webhooks, headers
from turnout.store import Store
from turnout.webhooks import Webhook

HOOK = Webhook(url="http://127.0.0.1:9/x", secret="0123456789abcdef")
DAY = 86_400 * 10**9


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open("", tmp_path / "turnout.db")
    yield store
    await store.close()


async def add(store: Store, *messages: Delivery) -> None:
    batch = creation(job("a"))
    batch.deliveries = list(messages)
    await store.commit(batch)


async def test_a_receiver_that_is_away_gets_one_attempt_and_old_messages_are_given_up(store: Store) -> None:
    now = time.time_ns()
    old = Delivery("msg_0", "x", "p", 1, now - 2 * DAY, b"{}")
    await add(store, old, *(Delivery(f"msg_{number}", "x", "p", 1, now, b"{}") for number in range(1, 60)))
    sender = Webhooks(store, {"x": HOOK})
    sender.start()
    async with asyncio.timeout(10):
        while (counts := await store.deliveries.counts("x")).given_up == 0:  # noqa: ASYNC110 (nothing tells it)
            await asyncio.sleep(0.01)
    await sender.close()
    assert (counts.waiting, counts.failing, counts.given_up) == (59, 0, 1)
    (failure,) = await store.deliveries.failures("x", 10)
    assert (failure.id, failure.attempts) == ("msg_0", 1)
    assert await store.deliveries.remove(time.time_ns()) == 1


async def test_old_messages_of_a_removed_webhook_are_given_up(store: Store) -> None:
    now = time.time_ns()
    old, new = (Delivery(f"msg_{at}", "gone", "p", 1, at, b"{}") for at in (now - 2 * DAY, now))
    await add(store, old, new)
    sender = Webhooks(store, {})
    sender.start()
    async with asyncio.timeout(10):
        while (counts := await store.deliveries.counts("gone")).given_up == 0:  # noqa: ASYNC110 (nothing tells it)
            await asyncio.sleep(0.01)
    await sender.close()
    assert (counts.waiting, counts.given_up) == (1, 1)


def test_what_is_signed() -> None:
    found = headers(HOOK, Delivery("msg_1", "x", "p", 1, 2, b'{"a":1}'), 1700000000)
    # As the library standardwebhooks makes it for the same key, id, time and body.
    assert found["webhook-signature"] == "v1,41C4mdfM4X7k7EqLRBhc2OjUAQFwQVsqMUoL0CbTfxc="


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (Webhook(url="ftp://x/", secret="0123456789abcdef"), "url must begin with"),
        (Webhook(url="https://x:y/", secret="0123456789abcdef"), "url must begin with"),
        (Webhook(url="https://x/a secret", secret="0123456789abcdef"), "url has a space"),
        (Webhook(url="https://me:pass@x/", secret="0123456789abcdef"), "are not sent"),
        (Webhook(url="https://x/", secret="short"), "at least 16 bytes"),
        (Webhook(url="https://x/"), "at least 16 bytes"),
        (Webhook(url="https://x/", secret="whsec_%%%"), "must be base64"),
        (
            Webhook(url="https://x/", format="slack", events=["paused"]),
            "'paused' is not known; there are queued",
        ),
    ],
)
def test_settings_without_sense_are_refused(hook: Webhook, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        webhooks.check({"x": hook})
