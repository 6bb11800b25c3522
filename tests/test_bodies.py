"""Request bodies: read whole, or refused if they are too large or too late; and the memory that all may use."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import Receive

from turnout import bodies
from turnout.bodies import STRANGER, WINDOW, Bodies, claimed, known, read_body, uploading
from turnout.errors import Busy, Invalid, TooLarge


def read(*messages: dict[str, Any], declared: bytes | None = None, **options: Any) -> bytes | None:
    """Reads a body from these messages. After the last one, `receive` waits for ever."""
    queue = iter(messages)

    async def receive() -> dict[str, Any]:
        for message in queue:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    headers = {} if declared is None else {b"content-length": declared}

    async def read_whole() -> bytes | None:
        with Bodies().open(known("p")) as reservation:
            return await read_body(reservation, headers, receive, 10, **options)

    return asyncio.run(read_whole())


def part(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


def test_a_body_arrives_in_one_piece_or_in_many() -> None:
    assert read(part(b"0123456789")) == b"0123456789"
    assert read(part(b"01", more=True), part(b"", more=True), part(b"23")) == b"0123"


def test_a_client_that_disconnects_gets_no_answer() -> None:
    assert read(part(b"01", more=True), {"type": "http.disconnect"}) is None


@pytest.mark.parametrize("declared", [b"11", b"9" * 5000])
def test_a_body_that_declares_too_large_a_length_is_refused_before_it_arrives(declared: bytes) -> None:
    with pytest.raises(TooLarge, match="may have 10 bytes"):
        read(declared=declared)


def test_a_body_is_refused_as_soon_as_it_is_too_large() -> None:
    with pytest.raises(TooLarge, match="no more than 10"):
        read(part(b"01234567890", more=True), too_large="no more than {limit}")


@pytest.mark.parametrize("messages", [[], [part(b"01", more=True)]])
def test_a_body_that_does_not_arrive_in_time_is_refused(
    messages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)
    with pytest.raises(Invalid, match="did not arrive") as caught:
        read(*messages, late="Late")
    assert caught.value.code == "Late"


def test_an_unauthenticated_sender_may_send_64_kilobytes() -> None:
    async def read_whole() -> None:
        with Bodies().open(STRANGER) as reservation:
            await read_body(reservation, {b"content-length": b"70000"}, nothing, 10 << 20)

    with pytest.raises(TooLarge, match="may have 65536 bytes"):
        asyncio.run(read_whole())


def test_a_document_of_too_many_values_is_refused() -> None:
    flood = b"[" + b"{}," * 300_000 + b"{}]"

    async def read_whole() -> None:
        with Bodies().open(known("p")) as reservation:
            await read_body(reservation, {}, receiving(part(flood)), 10 << 20)

    with pytest.raises(TooLarge, match="250000 values"):
        asyncio.run(read_whole())


# The memory of all bodies.


def receiving(*messages: dict[str, Any]) -> Receive:
    rest = iter(messages)

    async def receive() -> dict[str, Any]:
        for message in rest:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    return receive


nothing = receiving()


async def test_a_sender_waits_only_for_its_own_bodies() -> None:
    budget = Bodies(64 << 20)
    first, second, other = (budget.open(known(name)) for name in ("p", "p", "q"))
    with first:
        await first.reserve(12 << 20)
        waiting = asyncio.create_task(second.reserve(12 << 20))
        with other:
            await asyncio.wait_for(other.reserve(12 << 20), 5)
        assert not waiting.done()
    with second:
        await asyncio.wait_for(waiting, 5)
        assert not first.size


async def test_a_request_that_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "WAIT_SECONDS", 0.05)
    budget = Bodies(64 << 20)
    with budget.open(known("p")) as first, budget.open(known("p")) as second:
        await first.reserve(16 << 20)
        with pytest.raises(Busy):
            await second.reserve(1)
        with pytest.raises(Busy):
            second.grow(1)


async def test_unauthenticated_senders_do_not_keep_out_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "WAIT_SECONDS", 0.05)
    budget = Bodies(64 << 20)
    with contextlib.ExitStack() as held:
        strangers = [held.enter_context(budget.open(STRANGER)) for _ in range(1000)]
        results = await asyncio.gather(
            *(reservation.reserve(64 << 10) for reservation in strangers), return_exceptions=True
        )
        assert [type(result) for result in results].count(Busy) == 1000 - 128
        for sender in (claimed("key"), known("p")):
            with budget.open(sender) as reservation:
                await asyncio.wait_for(reservation.reserve(10 << 20), 5)


async def test_a_slow_body_is_refused_when_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SLOW_SECONDS", 0.05)
    monkeypatch.setattr(bodies, "SLOW_RATE", 1 << 40)
    budget = Bodies(64 << 20)

    async def slow() -> None:
        with budget.open(claimed("key")) as reservation:
            headers = {b"content-length": str(10 << 20).encode()}
            await read_body(reservation, headers, receiving(part(b"{", more=True)), 10 << 20)

    stalled = asyncio.create_task(slow())
    await asyncio.sleep(0)
    with budget.open(claimed("key")) as reservation:
        await asyncio.wait_for(reservation.reserve(10 << 20), 5)
    with pytest.raises(Busy, match="too slowly"):
        await stalled


async def endless(pause: float = 0, *first: bytes) -> AsyncIterator[bytes]:
    for piece in first:
        yield piece
    while True:
        await asyncio.sleep(pause)
        yield b"x"


async def test_an_upload_that_stalls_gives_way_to_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it was quick before, and if a byte comes now and then."""
    monkeypatch.setattr(bodies, "UPLOAD_SECONDS", 0.2)
    monkeypatch.setattr(bodies, "SLOW_SECONDS", 0.1)
    budget = Bodies(2 * WINDOW)
    begun = asyncio.Event()

    async def slow(project: str) -> None:
        async with budget.upload(project, endless(0.02, b"x" * WINDOW)) as pieces:
            async for _ in pieces:
                begun.set()

    stalled = [asyncio.create_task(slow(project)) for project in ("p", "q")]
    await begun.wait()
    async with asyncio.timeout(5), budget.upload("other", endless()) as pieces:
        assert await anext(pieces) == b"x"
    ended, _ = await asyncio.wait(stalled, return_when=asyncio.FIRST_COMPLETED)
    with pytest.raises(Busy, match="too slowly"):
        ended.pop().result()
    for one in stalled:
        one.cancel()
    await asyncio.gather(*stalled, return_exceptions=True)
    assert not budget.size


async def test_an_upload_does_not_give_way_because_the_disk_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "UPLOAD_SECONDS", 0.05)
    monkeypatch.setattr(bodies, "SLOW_SECONDS", 0.05)
    monkeypatch.setattr(bodies, "WAIT_SECONDS", 0.5)
    budget = Bodies(2 * WINDOW)
    async with budget.upload("p", endless()) as pieces:
        await anext(pieces)
        with budget.open(uploading("p")) as other, pytest.raises(Busy, match="too many"):
            await other.reserve(WINDOW)
        assert await anext(pieces) == b"x"


async def test_the_sender_that_holds_least_goes_first() -> None:
    budget = Bodies(64 << 20)
    order: list[str] = []

    async def send(name: str) -> None:
        with budget.open(known(name)) as reservation:
            await reservation.reserve(10 << 20)
            order.append(name)

    with budget.open(known("p")) as mine, budget.open(known("q")) as others:
        with budget.open(known("r")) as rest:
            await mine.reserve(6 << 20)
            await others.reserve(16 << 20)
            await rest.reserve(10 << 20)
            sending = [asyncio.create_task(send("p")), asyncio.create_task(send("new"))]
            await asyncio.sleep(0)
        await asyncio.gather(*sending)
    assert order == ["new", "p"]


async def test_memory_is_released_after_a_large_reservation() -> None:
    released = asyncio.Event()
    budget = Bodies(64 << 20, released.set)
    with budget.open(known("p")) as reservation:
        await reservation.reserve(10 << 20)
    await asyncio.wait_for(released.wait(), 5)
