"""The head of a response and the beginning of its body leave in one write, and nothing changes its order."""

import asyncio
from typing import Any, cast

import pytest

from turnout.web.joined_writes import JoinedWrites

pytestmark = pytest.mark.anyio


class Transport:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


@pytest.fixture
async def joined() -> tuple[JoinedWrites, Transport]:
    transport = Transport()
    return JoinedWrites(cast(Any, transport), asyncio.get_running_loop()), transport


async def test_head_and_body_are_one_write(joined: tuple[JoinedWrites, Transport]):
    responses, transport = joined
    for number in (b"1", b"2"):
        responses.head_is_next()
        responses.write(b"head" + number)
        responses.write(b"body" + number)
        responses.write(b"more" + number)
    await asyncio.sleep(0)
    assert transport.writes == [b"head1body1", b"more1", b"head2body2", b"more2"]


async def test_a_head_does_not_wait_for_a_body_that_comes_later(joined: tuple[JoinedWrites, Transport]):
    responses, transport = joined
    responses.head_is_next()
    responses.write(b"head")
    assert transport.writes == []
    await asyncio.sleep(0)
    assert transport.writes == [b"head"]
    responses.write(b"body")
    assert transport.writes == [b"head", b"body"]


async def test_a_large_body_is_not_copied(joined: tuple[JoinedWrites, Transport]):
    responses, transport = joined
    body = b"x" * (1 << 20)
    responses.head_is_next()
    responses.write(b"head")
    responses.write(body)
    assert transport.writes[0] == b"head"
    assert transport.writes[1] is body


async def test_a_connection_that_was_aborted_is_left_alone(joined: tuple[JoinedWrites, Transport]):
    responses, transport = joined
    responses.head_is_next()
    responses.write(b"head")
    transport.close()
    await asyncio.sleep(0)
    assert transport.writes == []


async def test_nothing_is_lost_at_the_end(joined: tuple[JoinedWrites, Transport]):
    responses, transport = joined
    responses.head_is_next()
    responses.write(b"head1")
    responses.head_is_next()
    responses.write(b"head2")  # the first had no body
    responses.close()
    await asyncio.sleep(0)
    assert transport.writes == [b"head1", b"head2"]
    assert responses.is_closing()
