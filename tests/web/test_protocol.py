"""Limits of HTTP/1.1: heads, lines, trailers and chunks, however they are split into packets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from turnout.web import protocol
from turnout.web.protocol import HEAD_BYTES, LINE_BYTES, MOST_HEADERS, MOST_PIPELINED, LimitedProtocol

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Responds with the size of the body and the headers."""
    request = Request(scope, receive)
    if scope["path"] == "/endless":
        await StreamingResponse(endless())(scope, receive, send)
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    if scope["path"] == "/refused":
        await PlainTextResponse("too large", 413)(scope, receive, send)
        return
    body = await request.body()
    names = b",".join(name for name, _ in scope["headers"]).decode()
    await PlainTextResponse(f"{len(body)} {names}")(scope, receive, send)


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 65536
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def serving(keep_alive: float = 5) -> AsyncIterator[int]:
    """`keep_alive`: seconds that a connection may be idle between two requests."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            app, http=LimitedProtocol, ws="none", lifespan="off", log_level="critical", loop="uvloop"
        )
        config.timeout_keep_alive = keep_alive  # type: ignore[assignment]  # uvicorn's annotation says int
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await task


async def answer(port: int, *pieces: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            if writer.transport.is_closing():
                break
            writer.write(piece)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            await asyncio.sleep(0.01)
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(reader.read(-1), 20)
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def until(reached: Callable[[], bool]) -> None:
    for _ in range(2000):
        if reached():
            return
        await asyncio.sleep(0.01)
    raise AssertionError


def split(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


LONG_HEADER = GET + b"X-Long: " + b"x" * HEAD_BYTES + b"\r\n\r\n"
LONG_TOGETHER = GET + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 1000) for n in range(100)) + b"\r\n"
MANY = GET + b"".join(b"X-%d: 1\r\n" % n for n in range(MOST_HEADERS)) + b"\r\n"
LONG_LINE = b"GET /" + b"x" * LINE_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n"
TRAILERS = (
    CHUNKED + b"1\r\nx\r\n0\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 999) for n in range(20)) + b"\r\n"
)


@pytest.mark.parametrize("size", [1 << 20, 50_000])
@pytest.mark.parametrize(
    ("data", "status"),
    [(LONG_HEADER, b"431"), (LONG_TOGETHER, b"431"), (MANY, b"431"), (LONG_LINE, b"414"), (TRAILERS, b"400")],
    ids=["a header", "headers", "many headers", "the line", "trailers"],
)
async def test_requests_above_a_limit_are_refused_however_they_are_split(
    data: bytes, status: bytes, size: int
):
    async with serving() as port:
        assert (await answer(port, *split(data, size)))[:13].startswith(b"HTTP/1.1 " + status)


async def test_requests_at_a_limit_are_answered():
    head = GET + b"Connection: close\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(200))
    async with serving() as port:
        assert b"200 OK" in await answer(port, head + b"X-Long: " + b"x" * 80_000 + b"\r\n\r\n")


async def test_a_trailer_is_not_taken_for_a_header():
    async with serving() as port:
        found = await answer(port, CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: me\r\n\r\n")
    assert b"200 OK" in found
    assert b"authorization" not in found


async def test_endless_chunk_extensions_are_cut_off():
    async with serving() as port:
        found = await answer(port, CHUNKED + b"1;", *[b"x" * 65536] * 20)
    assert found.startswith(b"HTTP/1.1 400") or not found


async def test_tiny_chunks_are_read():
    async with serving() as port:
        found = await answer(port, CHUNKED, *split(b"1\r\nx\r\n" * 100_000, 60_000), b"0\r\n\r\n")
    assert b"100000 " in found


async def test_a_head_that_does_not_end_times_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
    async with serving() as port:
        assert (await answer(port, b"GET / HTTP/1.1\r\nHo")).startswith(b"HTTP/1.1 408")
        assert await answer(port) == b""


@pytest.mark.parametrize(
    "request_",
    [
        GET + b"\r\n",
        b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000,
        b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + b"x" * 100_000,
    ],
    ids=["answered", "refused before its body was read", "refused, and its body never ends"],
)
async def test_an_idle_connection_is_closed(request_: bytes):
    async with serving(keep_alive=0.1) as port:
        assert (await answer(port, request_)).startswith(b"HTTP/1.1 ")


async def test_a_connection_is_not_idle_while_a_request_is_answered():
    async with serving(keep_alive=0.1) as port:
        slow = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
        assert (await answer(port, (GET + b"\r\n") + slow + slow)).count(b"200 OK") == 3


async def test_a_flood_of_pipelined_requests_is_cut_off():
    async with serving() as port:
        assert b"400 Bad Request" in await answer(port, (GET + b"\r\n") * 2000)
        few = (GET + b"\r\n") * (MOST_PIPELINED // 2) + GET + b"Connection: close\r\n\r\n"
        assert (await answer(port, few)).count(b"200 OK") == MOST_PIPELINED // 2 + 1


async def test_a_client_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "STALLED_SECONDS", 0.2)
    async with serving() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: bool(LimitedProtocol._unread))
        await until(lambda: not LimitedProtocol._unread)
        writer.close()


async def test_unsent_data_of_all_clients_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "UNSENT_BYTES", 1 << 20)
    async with serving() as port:
        writers: list[asyncio.StreamWriter] = []
        for _ in range(40):
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
            writers.append(writer)
        await asyncio.sleep(1)
        unsent = sum(one.transport.get_write_buffer_size() for one in LimitedProtocol._unread)
        assert 0 < unsent <= 1 << 20
        for writer in writers:
            writer.close()


async def test_large_heads_of_all_clients_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "HEADS_BYTES", 1 << 20)
    async with serving() as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        for _, writer in opened:
            writer.write(GET + b"a: " + b"x" * 50_000)
        await until(lambda: any(reader.at_eof() or reader.exception() for reader, _ in opened))
        assert 0 < LimitedProtocol._heads_size <= 1 << 20
        small = await answer(port, GET + b"Connection: close\r\n\r\n")
        assert b"200 OK" in small
        reader, writer = opened[-1]
        writer.write(b"\r\n\r\n")
        assert b"200 OK" in await reader.readline(), "the newest goes on"
        for _, writer in opened:
            writer.transport.abort()
        await until(lambda: not LimitedProtocol._large_heads)
        assert not LimitedProtocol._heads_size


async def test_bodies_that_are_discarded_take_turns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "DISCARD_SECONDS", 0.001)
    monkeypatch.setattr(protocol, "DISCARD_TURN_SECONDS", 0.02)
    thrown_away = 0
    may_go_on = LimitedProtocol._may_continue

    def counted(one: LimitedProtocol, came: int) -> bool:
        nonlocal thrown_away
        thrown_away += bool(one.cycle and one.cycle.response_complete)
        return may_go_on(one, came)

    monkeypatch.setattr(LimitedProtocol, "_may_continue", counted)
    senders = 20
    head = b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 12000000\r\n\r\n"
    async with serving() as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(senders)]
        before = asyncio.get_running_loop().time()
        for _, writer in opened:
            writer.write(head + b"x" * 12_000_000)
        for reader, _ in opened:
            assert b"413" in await reader.readline()
        await until(lambda: thrown_away > 3 * senders)
        turns = (asyncio.get_running_loop().time() - before) / 0.02
        # Beside its turns each may have one piece at its beginning.
        assert thrown_away <= turns + 2 * senders
        for _, writer in opened:
            writer.transport.abort()
